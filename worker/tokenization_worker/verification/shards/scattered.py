"""Reads the sidecars of shuffled shards with code of its own: the place of each document in the shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.places import Pieces

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
    def pieces(self) -> Pieces:
        """Of each entry, the tokens that are in the shard."""
        offsets = np.zeros(len(self.lengths), np.int64)
        offsets[:1] = self.skipped
        return Pieces(self.ends - self.lengths, self.lengths.astype(np.int64), self.files, self.positions, offsets)

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
