"""Counts pieces of text in compiled code: a hash table with open addressing over an arena of bytes.

Pieces are hashed where they lie and copied once, when they are new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.compiled import compiled, inlined
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.splitters import Bytes, Classes, next_cl100k, next_gpt2

_FIRST_PIECES = 1 << 14
_FIRST_BYTES = 1 << 18
_BYTES_A_PIECE = 8 + 8 + 4 + 8 + 8
"""Of hash, offset, length, count, and two slots of 4 bytes: the table is at most half full."""

_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)

_NO_CLASSES = np.zeros(0, np.uint8)

GPT2, CL100K, WHOLE = range(3)
"""How a text is cut; WHOLE: it is one piece. A number and not a function: numba keeps no code for functions made by
another one."""

Arrays = tuple[
    NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.uint8]
]
"""slots i32: a piece's number plus one, or 0; then of each piece hash u64, offset i64, length i32 and count i64; and
the arena u8."""


@inlined
def hash_of(data: Bytes, i: int, j: int) -> np.uint64:
    """Of the bytes [i, j), eight at a time."""
    h = _SEED
    while i + 8 <= j:
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[i + k]) << np.uint64(8 * k)
        h = (h ^ word) * _FACTOR
        h ^= h >> np.uint64(29)
        i += 8
    word = np.uint64(j - i) << np.uint64(56)
    k = 0
    while i < j:
        word |= np.uint64(data[i]) << np.uint64(8 * k)
        i += 1
        k += 1
    h = (h ^ word) * _FACTOR
    return h ^ (h >> np.uint64(32))


@compiled
def count_pieces(
    splitter: int,
    data: Bytes,
    ends: NDArray[np.int64],
    weights: NDArray[np.int64],
    place: NDArray[np.int64],
    classes: Classes,
    arrays: Arrays,
    used: NDArray[np.int64],
) -> None:
    """Count the pieces of texts that end at `ends`, each as often as `weights` says of its text. `splitter`: GPT2,
    CL100K, or WHOLE.

    `place` i64[2]: the text and the byte to go on at, here and at the end: of the last text, unless a new piece
    finds no room. `used` i64[2]: pieces, and bytes of the arena.
    """
    # One loop without calls: seven arrays as arguments, or taken out of a tuple, cost twice what a piece does.
    slots, hashes, offsets, lengths, counts, arena = arrays
    mask = np.uint64(len(slots) - 1)
    text, i = place[0], place[1]
    while text < len(ends):
        end, weight = ends[text], weights[text]
        while i < end:
            if splitter == GPT2:
                j = next_gpt2(data, i, end, classes)
            elif splitter == CL100K:
                j = next_cl100k(data, i, end, classes)
            else:
                j = end
            h = hash_of(data, i, j)
            slot = h & mask
            size = j - i
            is_known = False
            while slots[slot] != 0:
                piece = slots[slot] - 1
                if hashes[piece] == h and lengths[piece] == size:
                    offset = offsets[piece]
                    k = 0
                    while k < size and arena[offset + k] == data[i + k]:
                        k += 1
                    if k == size:
                        counts[piece] += weight
                        is_known = True
                        break
                slot = (slot + np.uint64(1)) & mask
            if not is_known:
                piece, offset = used[0], used[1]
                if piece == len(counts) or offset + size > len(arena):
                    place[0], place[1] = text, i
                    return
                slots[slot] = piece + 1
                hashes[piece] = h
                offsets[piece] = offset
                lengths[piece] = size
                counts[piece] = weight
                for k in range(size):
                    arena[offset + k] = data[i + k]
                used[0] = piece + 1
                used[1] = offset + size
            i = j
        text += 1
    place[0], place[1] = text, i


@compiled
def find_slots(hashes: NDArray[np.uint64], n: int, slots: NDArray[np.int32]) -> None:
    """Fill empty `slots` with the first n pieces."""
    mask = np.uint64(len(slots) - 1)
    for piece in range(n):
        slot = hashes[piece] & mask
        while slots[slot]:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = piece + 1


class PieceTable:
    """Pieces with their counts while they grow."""

    def __init__(self) -> None:
        self._used = np.zeros(2, np.int64)
        self._arrays = _new_arrays(_FIRST_PIECES, _FIRST_BYTES)

    @property
    def size_bytes(self) -> int:
        """Memory of what is in the table."""
        pieces, size = self._used.tolist()
        return int(pieces) * _BYTES_A_PIECE + int(size)

    def count(self, splitter: int, classes: Classes, data: Bytes, ends: NDArray[np.int64]) -> None:
        """Count the pieces of texts that lie one behind the other in `data` and end at `ends`."""
        self._count(splitter, classes, data, ends, np.ones(len(ends), np.int64))

    def add(self, pieces: Pieces) -> None:
        """Add the counts of `pieces`."""
        self._count(WHOLE, _NO_CLASSES, pieces.text, pieces.ends, pieces.counts)

    def _count(
        self,
        splitter: int,
        classes: Classes,
        data: Bytes,
        ends: NDArray[np.int64],
        weights: NDArray[np.int64],
    ) -> None:
        place = np.zeros(2, np.int64)
        while True:
            count_pieces(splitter, data, ends, weights, place, classes, self._arrays, self._used)
            if place[0] == len(ends):
                return
            self._grow(len(data))

    def take(self) -> Pieces:
        """All pieces in the order in which they came; the table is empty afterwards."""
        _, _, _, lengths, counts, arena = self._arrays
        pieces, size = self._used.tolist()
        taken = Pieces(arena[:size].copy(), np.cumsum(lengths[:pieces], dtype=np.int64), counts[:pieces].copy())
        self.__init__()  # type: ignore[misc]
        return taken

    def _grow(self, next_bytes: int) -> None:
        """Make room for twice as much, and for a piece of `next_bytes`."""
        pieces, size = self._used.tolist()
        slots, hashes, offsets, lengths, counts, arena = self._arrays
        n = len(counts) * 2 if pieces == len(counts) else len(counts)
        n_bytes = len(arena) if size + next_bytes <= len(arena) else max(2 * len(arena), size + next_bytes)
        if n == len(counts) and n_bytes == len(arena):
            n_bytes *= 2
        grown = _new_arrays(n, n_bytes, slots if n == len(counts) else None)
        grown[1][:pieces] = hashes[:pieces]
        grown[2][:pieces] = offsets[:pieces]
        grown[3][:pieces] = lengths[:pieces]
        grown[4][:pieces] = counts[:pieces]
        grown[5][:size] = arena[:size]
        if n != len(counts):
            find_slots(grown[1], pieces, grown[0])
        self._arrays = grown


def _new_arrays(pieces: int, size: int, slots: NDArray[np.int32] | None = None) -> Arrays:
    return (
        np.zeros(2 * pieces, np.int32) if slots is None else slots,
        np.empty(pieces, np.uint64),
        np.empty(pieces, np.int64),
        np.empty(pieces, np.int32),
        np.empty(pieces, np.int64),
        np.empty(size, np.uint8),
    )
