"""Puts pieces of text in the order of their bytes, in compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.compiled import READ_AHEAD, Bytes, Longs, compiled

Words = NDArray[np.uint64]


def order_of(text: Bytes, starts: Longs, ends: Longs) -> Longs:
    """The order of the pieces `text[start:end]` by their bytes, i64[n]: by their first 8 at once, then one by one."""
    first, second = first_words(text, starts, ends)
    order: Longs = np.argsort(first)
    sort_equals(first[order], second, text, starts, ends, order)
    return order


@compiled
def first_words(text: Bytes, starts: Longs, ends: Longs) -> tuple[Words, Words]:
    """The first and the second 8 bytes of each piece as numbers, u64[n]; zeros behind a shorter one."""
    first, second = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    for piece in range(len(starts)):
        start = starts[piece]
        size = ends[piece] - start
        for place in range(min(size, 8)):
            first[piece] |= np.uint64(text[start + place]) << np.uint64(8 * (7 - place))
        for place in range(8, min(size, 16)):
            second[piece] |= np.uint64(text[start + place]) << np.uint64(8 * (15 - place))
    return first, second


@compiled
def is_before(second: Words, text: Bytes, starts: Longs, ends: Longs, one: int, other: int) -> bool:
    """Whether the bytes of one piece come before those of another that has the same first word."""
    if second[one] != second[other]:
        return bool(second[one] < second[other])
    i, j = starts[one], starts[other]
    while i < ends[one] and j < ends[other]:
        if text[i] != text[j]:
            return bool(text[i] < text[j])
        i += 1
        j += 1
    return bool(i == ends[one] and j < ends[other])


@compiled
def sort_equals(first: Words, second: Words, text: Bytes, starts: Longs, ends: Longs, order: Longs) -> None:
    """Sort by all their bytes the pieces in `order` that have the same first word: as a heap, in place. `first`: in
    that order."""
    begin = 0
    while begin < len(order):
        size = 1
        while begin + size < len(order) and first[begin + size] == first[begin]:
            size += 1
        for step in range(size + size // 2 - 1, 0, -1):  # first the heap is built, then its largest goes to the end
            root, end = (step - size, size) if step >= size else (0, step)
            if step < size:
                order[begin], order[begin + end] = order[begin + end], order[begin]
            piece = order[begin + root]
            while 2 * root + 1 < end:
                child = 2 * root + 1
                other = min(child + 1, end - 1)
                if is_before(second, text, starts, ends, order[begin + child], order[begin + other]):
                    child = other
                if not is_before(second, text, starts, ends, piece, order[begin + child]):
                    break
                order[begin + root] = order[begin + child]
                root = child
            order[begin + root] = piece
        begin += size


@compiled
def join(text: Bytes, starts: Longs, ends: Longs) -> tuple[Bytes, Longs]:
    """The pieces `text[start:end]` one behind the other, u8[n_bytes], and their ends, i64[n]."""
    size = 0
    for piece in range(len(starts)):
        size += ends[piece] - starts[piece]
    joined, joined_ends = np.empty(size, np.uint8), np.empty(len(starts), np.int64)
    place = 0
    for first in range(0, len(starts), READ_AHEAD):
        last = min(first + READ_AHEAD, len(starts))
        read = 0
        for piece in range(first, last):
            read += text[starts[piece]]
        joined_ends[first] = read  # so that it is read
        for piece in range(first, last):
            for source in range(starts[piece], ends[piece]):
                joined[place] = text[source]
                place += 1
            joined_ends[piece] = place
    return joined, joined_ends
