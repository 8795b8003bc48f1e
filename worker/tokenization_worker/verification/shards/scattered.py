"""Reads the sidecars of shuffled shards with code of its own: the place of each document in the shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.order import keys_of
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import NoDocuments

_MAGIC = b"TOKDOCS2"


@dataclass(frozen=True, slots=True)
class ScatteredSidecar:
    """As it is stored; `lengths`, `files` u32[n], `positions` i64[n], and the sums of lengths `ends` i64[n]."""

    lengths: NDArray[np.uint32]
    ends: NDArray[np.int64]
    documents: int
    skipped: int
    continues: bool
    files: NDArray[np.uint32]
    positions: NDArray[np.int64]

    @property
    def first_file(self) -> int:
        return int(self.files[0])

    @property
    def first_position(self) -> int:
        return int(self.positions[0])


def parse_scattered(data: bytes) -> ScatteredSidecar:
    """The content of a sidecar's bytes; raises `NoDocuments`."""
    if data[:8] != _MAGIC:
        raise NoDocuments(f"begins with {data[:8]!r}, expected {_MAGIC!r}")
    try:
        end = 12 + int.from_bytes(data[8:12], "little")
        header = orjson.loads(data[12:end])
        start, n = end + -end % 8, int(header["entries"])
        if n < 1 or len(data) != start + 16 * n:
            raise NoDocuments(f"{len(data):,} bytes, its header says {n:,} entries")
        positions = np.frombuffer(data, "<i8", n, start)
        files, lengths = np.frombuffer(data, "<u4", 2 * n, start + 8 * n).reshape(2, n)
        skipped, documents, continues = int(header["skipped"]), int(header["documents"]), bool(header["continues"])
    except (ValueError, KeyError, TypeError) as error:
        raise NoDocuments(f"{type(error).__name__}: {error}") from error
    return ScatteredSidecar(
        lengths, np.cumsum(lengths, dtype=np.int64), documents, skipped, continues, files, positions
    )


Place = tuple[int, int, int]
"""Key, file and position: what documents are sorted by."""


def find_disorder(claim: ShardClaim, sidecar: ScatteredSidecar, seed: int) -> list[Finding]:
    """The first document of the shard that does not come behind the one before it, if there is one."""
    keys, files, positions = keys_of(seed, sidecar.files, sidecar.positions), sidecar.files, sidecar.positions
    is_less = positions[1:] <= positions[:-1]
    for values in (files, keys):
        is_less = (values[1:] < values[:-1]) | ((values[1:] == values[:-1]) & is_less)
    wrong = np.flatnonzero(is_less)
    if not len(wrong):
        return []
    at = int(wrong[0])
    was, now = ((int(keys[n]), int(files[n]), int(positions[n])) for n in (at, at + 1))
    return [disorder(claim, was, now, int(sidecar.ends[at]))]


def disorder(claim: ShardClaim, was: Place, now: Place, token: int) -> Finding:
    """That the document at `now` stands behind the one at `was`."""
    what = f"documents in the order of their keys, each once: after {_words(was)} a larger one"
    return Finding(Fault.ORDER_WRONG, what, _words(now), claim.path, token)


def _words(place: Place) -> str:
    key, file, position = place
    return f"key {key:#018x} (file {file}, position {position:,})"


def places_at_ends(sidecar: ScatteredSidecar, seed: int) -> tuple[Place, Place]:
    """Of the first and of the last document."""
    ends = [0, -1]
    keys = keys_of(seed, sidecar.files[ends], sidecar.positions[ends])
    first, last = zip(keys.tolist(), sidecar.files[ends].tolist(), sidecar.positions[ends].tolist(), strict=True)
    return first, last
