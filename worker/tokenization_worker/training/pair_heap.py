"""A heap of pairs by their counts, in compiled code; and which of two pairs with one count goes first."""

from __future__ import annotations

import numpy as np

from tokenization_worker.training.compiled import Bytes, Ints, Longs, compiled

Integer = int | np.signedinteger
Heap = tuple[Longs, Longs]
"""Counts, and the pairs (left << 32 | right) that had them."""
Texts = tuple[Bytes, Longs]
"""The bytes of all tokens, one behind the other, and their ends; without tokens where the lowest pair goes first."""


@compiled
def compare_texts(one: Integer, other: Integer, texts: Texts) -> int:
    """-1, 0 or 1: how the bytes of one token compare with those of another."""
    data, ends = texts
    i = ends[one - 1] if one else 0
    j = ends[other - 1] if other else 0
    while i < ends[one] and j < ends[other]:
        if data[i] != data[j]:
            return -1 if data[i] < data[j] else 1
        i += 1
        j += 1
    if i == ends[one] and j == ends[other]:
        return 0
    return -1 if i == ends[one] else 1


@compiled
def goes_first(pair: np.int64, other: np.int64, texts: Texts) -> bool:
    """Whether a pair goes before another one that has the same count."""
    if len(texts[1]) == 0:
        return bool(pair < other)
    order = compare_texts(pair >> 32, other >> 32, texts)
    if order == 0:
        order = compare_texts(pair & 0xFFFFFFFF, other & 0xFFFFFFFF, texts)
    return order > 0


@compiled
def rise(heap: Heap, place: int, texts: Texts) -> None:
    """Move an entry up to where it belongs."""
    counts, pairs = heap
    count, pair = counts[place], pairs[place]
    while place > 0:
        parent = (place - 1) >> 1
        if counts[parent] > count or (counts[parent] == count and not goes_first(pair, pairs[parent], texts)):
            break
        counts[place], pairs[place] = counts[parent], pairs[parent]
        place = parent
    counts[place], pairs[place] = count, pair


@compiled
def sink(heap: Heap, size: int, texts: Texts) -> None:
    """Move the first entry down to where it belongs."""
    counts, pairs = heap
    count, pair = counts[0], pairs[0]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        other = child + 1
        if other < size and (
            counts[other] > counts[child]
            or (counts[other] == counts[child] and goes_first(pairs[other], pairs[child], texts))
        ):
            child = other
        if count > counts[child] or (count == counts[child] and not goes_first(pairs[child], pair, texts)):
            break
        counts[place], pairs[place] = counts[child], pairs[child]
        place = child
    counts[place], pairs[place] = count, pair


@compiled
def add_text(texts: Texts, left: Integer, right: Integer, new: Integer) -> Texts:
    """The texts with that of the token `new`, which `left` and `right` make."""
    data, ends = texts
    end = ends[new - 1]
    for token in (left, right):
        start = ends[token - 1] if token else 0
        size = ends[token] - start
        if end + size > len(data):
            wider = np.empty(2 * (end + size), np.uint8)
            wider[:end] = data[:end]
            data = wider
        data[end : end + size] = data[start : start + size]
        end += size
    ends[new] = end
    return data, ends


def byte_texts(byte_ids: Ints, n_symbols: int) -> Texts:
    """The texts of the first 256 of so many symbols; none of 0."""
    ends = np.zeros(n_symbols, np.int64)
    data = np.zeros(1 << 12, np.uint8)
    if n_symbols:
        data[byte_ids] = np.arange(256)
        ends[:256] = np.arange(1, 257)
    return data, ends
