"""Packs the documents of a shard anew, from the lengths that its parts give them. Written from docs/layout.md: pure.

A shard of packed rows has all pieces of its documents. They end in its window of the stream, and each block of the
window is packed on its own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import PackingClaim, ShardClaim
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.parts import PART, PartArray, describe_part, part_at
from tokenization_worker.verification.shards.tiling import TilingFault

LEAST_BLOCK, MOST_BLOCK = 1 << 24, 1 << 25
"""Tokens."""


class _Documents(NamedTuple):
    """The documents of a shard in the order of the source, from its parts. `of_part`: the document of each part."""

    files: NDArray[np.int64]
    positions: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    of_part: NDArray[np.int64]


def _documents_of(parts: PartArray) -> _Documents:
    order = np.lexsort((parts["offset"], parts["position"], parts["file"]))
    file, position = parts["file"][order].astype(np.int64), parts["position"][order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (file[1:] != file[:-1]) | (position[1:] != position[:-1])
    of_part = np.empty(len(order), np.int64)
    of_part[order] = np.cumsum(is_first) - 1
    lengths = np.zeros(int(is_first.sum()), np.int64)
    np.add.at(lengths, of_part, parts["length"])
    return _Documents(file[is_first], position[is_first], lengths, of_part)


def are_last_pieces(parts: PartArray) -> NDArray[np.bool_]:
    """Which parts end their document, where a shard has all pieces of it."""
    documents = _documents_of(parts)
    is_last: NDArray[np.bool_] = (
        parts["offset"].astype(np.int64) + parts["length"] == documents.lengths[documents.of_part]
    )
    return is_last


def find_packing_fault(parts: PartArray, length: int, packing: PackingClaim, claim: ShardClaim) -> TilingFault | None:
    """The first part that is not where the packing of the documents puts it."""
    documents = _documents_of(parts)
    window = packing.window_tokens
    lasts = claim.text_start + np.cumsum(documents.lengths) - 1 - claim.number * window
    n_blocks = -(-window // max(LEAST_BLOCK, min(1024 * length, MOST_BLOCK)))
    borders = np.searchsorted(lasts, [number * window // n_blocks for number in range(n_blocks + 1)]).tolist()
    row = done = 0  # before this block
    for low, high in pairwise(borders):
        wanted, row = _pack_block(documents, low, high, row, length, packing.max_documents)
        there = parts[done : done + len(wanted)]
        wrong = np.flatnonzero(there != wanted[: len(there)])
        if len(wrong) or len(there) < len(wanted):
            at = int(wrong[0]) if len(wrong) else len(there)
            found = describe_part(part_at(there, at)) if at < len(there) else "none"
            expected = f"by best fit {describe_part(part_at(wanted, at))}"
            return TilingFault(done + at, Fault.PARTS_WRONG, expected, found)
        done += len(wanted)
    if done < len(parts):
        expected = f"only documents that end in tokens {claim.number * window:,} to {(claim.number + 1) * window - 1:,}"
        return TilingFault(done, Fault.PARTS_WRONG, expected, describe_part(part_at(parts, done)))
    return None


def _pack_block(
    documents: _Documents, first: int, end: int, row: int, length: int, most: int | None
) -> tuple[PartArray, int]:
    """The parts of documents [first, end), whose first row is `row`, and the row behind them."""
    rows = _pack(documents.lengths[first:end].tolist(), length, most)
    pieces = np.array([piece for each in rows for piece in each], np.int64).reshape(-1, 3)
    sizes = pieces[:, 2]
    parts = np.empty(len(pieces), PART)
    parts["file"], parts["position"] = documents.files[first + pieces[:, 0]], documents.positions[first + pieces[:, 0]]
    counts = np.array([len(each) for each in rows], np.int64)
    parts["row"] = np.repeat(row + np.arange(len(rows)), counts)
    begins = np.cumsum(sizes) - sizes
    parts["start"] = begins - np.repeat(begins[np.cumsum(counts) - counts], counts)
    parts["length"], parts["offset"] = sizes, pieces[:, 1]
    return parts, row + len(rows)


def _pack(lengths: list[int], length: int, most: int | None) -> list[list[tuple[int, int, int]]]:
    """The rows of a block: of each piece its document, its offset in it and its tokens."""
    pieces = [
        (document, offset, min(length, size - offset))
        for document, size in enumerate(lengths)
        for offset in range(0, size, length)
    ]
    rooms: list[tuple[int, int, int]] = []  # room, since which step, row
    rows: list[list[int]] = []
    for step, number in enumerate(sorted(range(len(pieces)), key=lambda each: -pieces[each][2])):
        size = pieces[number][2]
        at = bisect_left(rooms, (size,))
        if at < len(rooms):
            room, _, row = rooms.pop(at)
        else:
            room, row = length, len(rows)
            rows.append([])
        rows[row].append(number)
        if room > size and (most is None or len(rows[row]) < most):
            insort(rooms, (room - size, step, row))
    in_order = sorted((sorted(numbers) for numbers in rows), key=lambda numbers: numbers[0])
    return [[pieces[number] for number in numbers] for numbers in in_order]
