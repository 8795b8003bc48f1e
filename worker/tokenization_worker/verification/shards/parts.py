"""Reads files of parts with code of its own: which piece of which document stands where in a shard's rows.

The file is numpy's `.npy`, version 1.0 (NEP 1), one dimension: 256 bytes of header, then 28 bytes a part. It is held
whole: 28 bytes a part, and 8 for the token at which the part begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.shards.documents import Begins, Difference, NoDocuments, Numbers, PlacedDocuments
from tokenization_worker.verification.shards.places import Pieces

PART = np.dtype(
    [("position", "<u8"), ("file", "<u4"), ("row", "<u4"), ("start", "<u4"), ("length", "<u4"), ("offset", "<u4")]
)

HEADER_BYTES = 256

PartArray = NDArray[np.void]

_HEADER = re.compile(
    re.escape(f"\x93NUMPY\x01\x00\xf6\x00{{'descr': {PART.descr}, 'fortran_order': False, 'shape': (".encode("latin-1"))
    + rb"([0-9]{1,18}),\), \} *\n"
)
"""No other spelling than numpy's: it parses a header as Python."""

_PARTS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a shard in the order of the file; `tokens` i64[n]: the token of the shard at which each begins."""

    stored: PartArray
    tokens: Numbers

    def begins(self) -> Iterator[Begins]:
        """Of each part that begins a document, its first token and the document's place."""
        first = np.flatnonzero(self.stored["offset"] == 0)
        for at in range(0, len(first), _PARTS_AT_ONCE):
            chosen = first[at : at + _PARTS_AT_ONCE]
            places = self.stored[chosen]
            yield Begins(self.tokens[chosen], places["file"].astype(np.int64), places["position"].astype(np.int64))

    @property
    def pieces(self) -> Pieces:
        lengths, positions, offsets = (self.stored[name].astype(np.int64) for name in ("length", "position", "offset"))
        return Pieces(self.tokens, lengths, self.stored["file"], positions, offsets)

    def firsts(self) -> PartArray:
        """The part that begins each row; the parts tile the rows."""
        firsts: PartArray = self.stored[self.stored["start"] == 0]
        return firsts

    def first(self) -> None:
        """Nothing: `begins` knows all places."""

    def difference(self, shard: ShardClaim, documents: PlacedDocuments) -> Difference | None:
        expected, numbers = _cut(documents, shard)
        borders = [max(int(documents.begins[0]), shard.start), min(int(documents.ends[-1]), shard.end)]
        start, end = np.searchsorted(self.tokens, np.array(borders) - shard.start, side="left")
        found = self.stored[start:end]
        both = min(len(expected), len(found))
        differ = np.flatnonzero(expected[:both] != found[:both])
        if not len(differ) and len(expected) == len(found):
            return None
        at = int(differ[0]) if len(differ) else both
        last = min(at, len(expected) - 1)
        token = int(expected["row"][last]) * (shard.stored // shard.rows) + int(expected["start"][last])
        words = [
            describe_part(part_at(parts, at)) if at < len(parts) else "no further part" for parts in (expected, found)
        ]
        return Difference(words[0], words[1], token, int(numbers[last]))


def _cut(documents: PlacedDocuments, shard: ShardClaim) -> tuple[PartArray, Numbers]:
    """The parts that these documents have in the shard, and the document of each."""
    length = shard.stored // shard.rows
    begins, ends = np.maximum(documents.begins, shard.start), np.minimum(documents.ends, shard.end)
    inside = np.flatnonzero(begins < ends)
    first_rows, last_rows = begins[inside] // length, (ends[inside] - 1) // length
    numbers = np.repeat(inside, last_rows - first_rows + 1)
    is_first = np.diff(numbers, prepend=-1) != 0
    rows = np.arange(len(numbers)) - np.maximum.accumulate(np.where(is_first, np.arange(len(numbers)), 0))
    rows += np.repeat(first_rows, last_rows - first_rows + 1)
    tokens = np.maximum(begins[numbers], rows * length)
    parts = np.empty(len(numbers), dtype=PART)
    parts["position"], parts["file"] = documents.positions[numbers], documents.file
    parts["row"] = rows - shard.start // length
    parts["start"] = tokens % length
    parts["length"] = np.minimum(ends[numbers], (rows + 1) * length) - tokens
    parts["offset"] = tokens - documents.begins[numbers]
    return parts, numbers


def parse_parts(data: bytes, row_length: int) -> Parts:
    """The content of the file's bytes; raises `NoDocuments`."""
    found = _HEADER.fullmatch(data[:HEADER_BYTES])
    if found is None:
        raise NoDocuments(f"begins with {data[:HEADER_BYTES]!r}, expected the header of a file of parts")
    if len(data) - HEADER_BYTES != int(found[1]) * PART.itemsize:
        raise NoDocuments(f"{len(data) - HEADER_BYTES:,} bytes of parts, its header says {int(found[1]):,} parts")
    stored = np.frombuffer(data, dtype=PART, offset=HEADER_BYTES)
    return Parts(stored, stored["row"].astype(np.int64) * row_length + stored["start"])


class Part(NamedTuple):
    """One part."""

    position: int
    file: int
    row: int
    start: int
    length: int
    offset: int


def _describe(parts: PartArray, number: int) -> str:
    return describe_part(part_at(parts, number)) if number < len(parts) else "no further part"


def part_at(parts: PartArray, number: int) -> Part:
    return Part(*parts[number].tolist())


def describe_part(part: Part) -> str:
    """A part, in words."""
    position, file, row, start, length, offset = part
    return (
        f"tokens {offset:,} to {offset + length - 1:,} of the document at {position:,} of file {file} in row {row:,} "
        f"from token {start:,} on"
    )
