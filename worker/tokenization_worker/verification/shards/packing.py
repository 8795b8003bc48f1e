"""Packs the documents of a shard anew, from the lengths that its parts give them. Written from docs/layout.md: pure.

A shard of packed rows has all pieces of its documents. They end in its window of the stream, and each block of the
window is packed on its own. Where rows are shuffled, a shard says only which pieces cannot be; `packing_proof` packs
the documents of the source.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import PackingClaim, ShardClaim
from tokenization_worker.verification.order import U64, hash_places, keys_of, mix, mix_offsets
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
    """The first part that is not where the packing of the documents puts it; where rows are shuffled, the first one
    that no packing puts there."""
    window = packing.window_tokens
    if window is None or packing.truncates:
        fault = _find_piece_fault(parts, length, packing)
        if fault is not None or window is None:
            return fault
    documents = _documents_of(parts)
    lasts = claim.text_start + np.cumsum(documents.lengths) - 1 - claim.number * window
    n_blocks = -(-window // largest_block(length))
    borders = np.searchsorted(lasts, [number * window // n_blocks for number in range(n_blocks + 1)]).tolist()
    row = done = 0  # before this block
    for low, high in pairwise(borders):
        mine = (documents.files[low:high], documents.positions[low:high], documents.lengths[low:high])
        wanted, row = pack_block(*mine, length=length, most=packing.max_documents, row=row)
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


def _find_piece_fault(parts: PartArray, length: int, packing: PackingClaim) -> TilingFault | None:
    most = packing.max_documents
    cut = np.flatnonzero(parts["offset"] if packing.truncates else parts["offset"] % length)
    if len(cut):
        expected = f"a piece that begins at a multiple of {length:,} tokens of its document"
        if packing.truncates:
            expected = "the beginning of a document: what is longer than a row is cut off"
        return TilingFault(int(cut[0]), Fault.PARTS_WRONG, expected, describe_part(part_at(parts, int(cut[0]))))
    more = np.flatnonzero(parts["row"][most:] == parts["row"][:-most]) if most is not None else cut
    if len(more):
        number = int(more[0]) + (most or 0)
        return TilingFault(
            number, Fault.PARTS_WRONG, f"at most {most:,} parts in a row", describe_part(part_at(parts, number))
        )
    return None


def largest_block(length: int) -> int:
    """Tokens of a block at most; of one whose rows are shuffled, these."""
    return max(LEAST_BLOCK, min(1024 * length, MOST_BLOCK))


def pack_block(
    files: NDArray[np.int64],
    positions: NDArray[Any],
    lengths: NDArray[np.int64],
    *,
    length: int,
    most: int | None,
    row: int = 0,
) -> tuple[PartArray, int]:
    """The parts of a block's documents, each of one token or more, whose first row is `row`, and the row behind
    them."""
    rows = _pack(lengths.tolist(), length, most)
    pieces = np.array([piece for each in rows for piece in each], np.int64).reshape(-1, 3)
    sizes = pieces[:, 2]
    parts = np.empty(len(pieces), PART)
    parts["file"], parts["position"] = files[pieces[:, 0]], positions[pieces[:, 0]]
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


def hash_parts(parts: PartArray, seed: int) -> tuple[U64, U64]:
    """Of parts that tile rows, u64[n] each: the key of each part's row, and a hash of the row and the part."""
    is_first = parts["start"] == 0
    firsts = parts[is_first]
    keys = keys_of(seed, firsts["file"], firsts["position"], firsts["offset"])[np.cumsum(is_first) - 1]
    places = mix_offsets(hash_places(keys, parts["file"], parts["position"]), parts["offset"])
    size = (parts["start"].astype(np.uint64) << np.uint64(32)) + parts["length"]
    return keys, mix(np.add(places, size))
