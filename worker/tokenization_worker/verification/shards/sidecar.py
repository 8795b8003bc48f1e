"""Reads documents sidecars with code of its own, and checks them against what the tables claim of their shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import Begins, Difference, NoDocuments, PlacedDocuments
from tokenization_worker.verification.shards.scattered import ScatteredSidecar

_MAGIC = b"TOKDOCS1"

_DOCUMENTS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A documents sidecar as it is stored; `lengths` u32[n], and their sums `ends` i64[n]: 12 bytes a document."""

    lengths: NDArray[np.uint32]
    ends: NDArray[np.int64]
    documents: int
    first_file: int
    first_position: int
    skipped: int
    continues: bool

    def begins(self) -> Iterator[Begins]:
        """Of each document that begins in the shard, its first token."""
        for at in range(1 if self.skipped else 0, len(self.ends), _DOCUMENTS_AT_ONCE):
            part = slice(at, at + _DOCUMENTS_AT_ONCE)
            yield Begins(self.ends[part] - self.lengths[part])

    def first(self) -> tuple[int, int, int]:
        return self.first_file, self.first_position, self.skipped

    def difference(self, shard: ShardClaim, documents: PlacedDocuments) -> Difference | None:
        begins, ends = documents.begins, documents.ends
        first = int(np.searchsorted(ends, shard.start, side="right"))
        place = max(0, int(begins[first]) - shard.start), first
        low, high = max(int(begins[0]), shard.start), min(int(ends[-1]), shard.end)
        wanted = ends[(ends > low) & (ends <= high)]
        last = int(np.searchsorted(ends, shard.end, side="left"))  # the document that holds the shard's last token
        if high == shard.end and int(ends[last]) > shard.end:
            wanted = np.append(wanted, shard.end)
        borders = np.searchsorted(self.ends, [low - shard.start, high - shard.start], side="right")
        listed = shard.start + self.ends[borders[0] : borders[1]]
        if not np.array_equal(wanted, listed):
            at = np.setxor1d(wanted, listed)
            token = int(at[0]) - shard.start if len(at) else 0
            found = f"{len(listed):,}, the first difference at token {token:,}"
            return Difference(f"{len(wanted):,} documents to end in it", found, *place)
        if low == shard.start:
            expected = (documents.file, int(documents.positions[first]), shard.start - int(begins[first]))
            if expected != self.first():
                words = f"file, position and skipped tokens of its first document {expected}"
                return Difference(words, f"{self.first()}", *place)
        if high == shard.end and self.continues != (int(ends[last]) > shard.end):
            return Difference(f"continues: {int(ends[last]) > shard.end}", f"{self.continues}", *place)
        return None


def parse_sidecar(data: bytes) -> Sidecar:
    """The content of a sidecar's bytes; raises `NoDocuments`."""
    if data[:8] != _MAGIC:
        raise NoDocuments(f"begins with {data[:8]!r}, expected {_MAGIC!r}")
    try:
        header_end = 12 + int.from_bytes(data[8:12], "little")
        header = orjson.loads(data[12:header_end])
        lengths = np.frombuffer(data, dtype="<u4", offset=header_end + -header_end % 8)
        sidecar = Sidecar(
            lengths,
            np.cumsum(lengths, dtype=np.int64),
            int(header["documents"]),
            int(header["firstFile"]),
            int(header["firstPosition"]),
            int(header["skipped"]),
            bool(header["continues"]),
        )
        entries = int(header["entries"])
    except (ValueError, KeyError, TypeError) as error:
        raise NoDocuments(f"{type(error).__name__}: {error}") from error
    if entries != len(lengths):
        raise NoDocuments(f"{len(lengths)} lengths, its header says {entries}")
    return sidecar


@dataclass(frozen=True, slots=True)
class SidecarEnds:
    """What a sidecar says of the shard's two ends, for the comparison with its neighbours."""

    documents: int
    first_file: int
    first_position: int
    last_length: int
    entries: int
    skipped: int
    continues: bool


def check_sidecar(claim: ShardClaim, sidecar: Sidecar | ScatteredSidecar, digest: str) -> list[Finding]:
    findings = []
    begun = len(sidecar.lengths) - (sidecar.skipped > 0)
    for what, expected, found in (
        ("tokens", claim.tokens, int(sidecar.lengths.sum())),
        ("documents that begin in the shard", claim.documents, begun),
        ("documents in its own header", claim.documents, sidecar.documents),
        ("entries of no tokens", 0, int((sidecar.lengths == 0).sum())),
    ):
        if expected != found:
            expected_words = f"{expected:,} {what}"
            findings.append(Finding(Fault.SIDECAR_WRONG, expected_words, f"{found:,}", claim.sidecar_path))
    if digest != claim.documents_sha256:
        expected_words = f"SHA-256 {claim.documents_sha256}"
        findings.append(Finding(Fault.SIDECAR_WRONG, expected_words, digest, claim.sidecar_path))
    return findings


def sidecar_ends(sidecar: Sidecar | ScatteredSidecar | None) -> SidecarEnds | None:
    if sidecar is None or not len(sidecar.lengths):
        return None
    return SidecarEnds(
        documents=sidecar.documents,
        first_file=sidecar.first_file,
        first_position=sidecar.first_position,
        last_length=int(sidecar.lengths[-1]),
        entries=len(sidecar.lengths),
        skipped=sidecar.skipped,
        continues=sidecar.continues,
    )


def check_sidecar_neighbours(shards: Sequence[tuple[ShardClaim, SidecarEnds | None]]) -> Iterator[Finding]:
    """Whether a document that leaves one shard of a stream enters the next one with as many tokens behind it.

    `shards`: all shards of one stream in order; nothing is known behind one without ends.
    """
    behind = 0  # tokens, in earlier shards, of the document that goes on
    for number, (claim, ends) in enumerate(shards, 1):
        if ends is None:
            return
        if ends.skipped != behind:
            expected = f"{behind:,} tokens of the first document in earlier shards"
            yield Finding(Fault.SIDECAR_WRONG, expected, f"{ends.skipped:,}", claim.sidecar_path)
        if ends.continues and number == len(shards):
            what = "a last document that ends in the last shard"
            yield Finding(Fault.SIDECAR_WRONG, what, "one that goes on", claim.sidecar_path)
        is_one = ends.entries == 1
        behind = (ends.last_length + (ends.skipped if is_one else 0)) if ends.continues else 0
