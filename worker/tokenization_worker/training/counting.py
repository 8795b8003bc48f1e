"""Counts pieces of text in compiled code: a hash table with open addressing over an arena of bytes.

Pieces are hashed where they lie and copied once, when they are new.
"""

from __future__ import annotations

import numpy as np

from tokenization_worker.training.compiled import READ_AHEAD, Bytes, Ints, Longs, compiled, inlined
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.splitters import Classes, next_cl100k, next_gpt2, next_o200k

_FIRST_PIECES = 1 << 14
_FIRST_BYTES = 1 << 18
_BYTES_A_PIECE = 4 * 8 + 2 * 4
"""Of an entry, and two slots: the table is at most half full."""

_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)

_NO_CLASSES = np.zeros(0, np.uint8)

GPT2, CL100K, O200K, WHOLE = range(4)
"""How a text is cut; WHOLE: it is one piece. A number and not a function: numba keeps no code for functions made by
another one."""

Arrays = tuple[Ints, Longs, Bytes]
"""slots i32: a piece's number plus one, or 0; entries i64[n, 4], one of each piece; and the arena u8."""
HASH, OFFSET, LENGTH, COUNT = range(4)
"""Columns of the entries: an entry is half a line of the processor's cache."""


@inlined
def hash_of(data: Bytes, i: int, j: int) -> np.uint64:
    """Of the bytes [i, j), eight at a time. Two different pieces of fewer than 8 bytes never have the same hash."""
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
    h = (h ^ (h >> np.uint64(32))) * _FACTOR
    return h ^ (h >> np.uint64(32))


@compiled
def count_pieces(
    splitter: int,
    data: Bytes,
    ends: Longs,
    weights: Longs,
    place: Longs,
    classes: Classes,
    arrays: Arrays,
    used: Longs,
) -> int:
    """Count the pieces of texts that end at `ends`, each as often as `weights` says of its text. `splitter`: GPT2,
    CL100K, O200K, or WHOLE.

    `place` i64[2]: the text and the byte to go on at. `used` i64[3]: pieces, bytes of the arena, and what was read
    ahead. Returns 0 behind the last text, else how much room the bytes of the next pieces need if all are new.
    """
    # One loop without calls: many arrays as arguments, or taken out of a tuple, cost twice what a piece does.
    slots, entries, arena = arrays
    mask = np.uint64(len(slots) - 1)
    starts, sizes = np.empty(READ_AHEAD, np.int64), np.empty(READ_AHEAD, np.int64)
    times, hashes = np.empty(READ_AHEAD, np.int64), np.empty(READ_AHEAD, np.uint64)
    firsts = np.empty(READ_AHEAD, np.int64)
    text, i = place[0], place[1]
    while text < len(ends):
        n = 0
        while n < READ_AHEAD and text < len(ends):
            end, weight = ends[text], weights[text]
            while n < READ_AHEAD and i < end:
                if splitter == GPT2:
                    j = next_gpt2(data, i, end, classes)
                elif splitter == CL100K:
                    j = next_cl100k(data, i, end, classes)
                elif splitter == O200K:
                    j = next_o200k(data, i, end, classes)
                else:
                    j = end
                starts[n], sizes[n], times[n] = i, j - i, weight
                i = j
                n += 1
            if i == end:
                text += 1
        room = 0
        for k in range(n):
            room += sizes[k]
        if used[0] + n > len(entries) or used[1] + room > len(arena):
            return room
        for k in range(n):
            hashes[k] = hash_of(data, starts[k], starts[k] + sizes[k])
        for k in range(n):
            firsts[k] = slots[hashes[k] & mask]
        read = np.int64(0)
        for k in range(n):
            read += entries[max(firsts[k] - 1, 0), LENGTH]
        used[2] = read
        for k in range(n):
            start, size, hashed = starts[k], sizes[k], np.int64(hashes[k])
            slot = hashes[k] & mask
            is_known = False
            while slots[slot] != 0:
                piece = slots[slot] - 1
                if entries[piece, HASH] == hashed and entries[piece, LENGTH] == size:
                    same = 0
                    if size >= 8:
                        offset = entries[piece, OFFSET]
                        while same < size and arena[offset + same] == data[start + same]:
                            same += 1
                    if size < 8 or same == size:
                        entries[piece, COUNT] += times[k]
                        is_known = True
                        break
                slot = (slot + np.uint64(1)) & mask
            if not is_known:
                piece, offset = used[0], used[1]
                slots[slot] = piece + 1
                entries[piece, HASH] = hashed
                entries[piece, OFFSET] = offset
                entries[piece, LENGTH] = size
                entries[piece, COUNT] = times[k]
                for same in range(size):
                    arena[offset + same] = data[start + same]
                used[0] = piece + 1
                used[1] = offset + size
        place[0], place[1] = text, i
    return 0


@compiled
def find_slots(entries: Longs, n: int, slots: Ints) -> None:
    """Fill empty `slots` with the first n pieces."""
    mask = np.uint64(len(slots) - 1)
    for piece in range(n):
        slot = np.uint64(entries[piece, HASH]) & mask
        while slots[slot]:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = piece + 1


class PieceTable:
    """Pieces with their counts while they grow."""

    def __init__(self) -> None:
        self._used = np.zeros(3, np.int64)
        self._arrays = _new_arrays()

    @property
    def size_bytes(self) -> int:
        """Memory of what is in the table."""
        pieces, size, _ = self._used.tolist()
        return int(pieces) * _BYTES_A_PIECE + int(size)

    def count(self, splitter: int, classes: Classes, data: Bytes, ends: Longs) -> None:
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
        ends: Longs,
        weights: Longs,
    ) -> None:
        place = np.zeros(2, np.int64)
        while room := count_pieces(splitter, data, ends, weights, place, classes, self._arrays, self._used):
            self._grow(room)

    def take(self) -> Pieces:
        """All pieces in the order in which they came; the table is empty afterwards."""
        _, entries, arena = self._arrays
        pieces, size, _ = self._used.tolist()
        ends = np.cumsum(entries[:pieces, LENGTH])
        taken = Pieces(arena[:size].copy(), ends, entries[:pieces, COUNT].copy())
        self.__init__()  # type: ignore[misc]
        return taken

    def _grow(self, room: int) -> None:
        """Make room for a batch of pieces with so many bytes."""
        pieces, size, _ = self._used.tolist()
        slots, entries, arena = self._arrays
        n = len(entries) if pieces + READ_AHEAD <= len(entries) else 2 * len(entries)
        n_bytes = len(arena) if size + room <= len(arena) else max(2 * len(arena), size + room)
        if n != len(entries):
            wider = np.empty((n, 4), np.int64)
            wider[:pieces] = entries[:pieces]
            slots, entries = np.zeros(2 * n, np.int32), wider
            find_slots(entries, pieces, slots)
        if n_bytes != len(arena):
            longer = np.empty(n_bytes, np.uint8)
            longer[:size] = arena[:size]
            arena = longer
        self._arrays = slots, entries, arena


def _new_arrays() -> Arrays:
    return (
        np.zeros(2 * _FIRST_PIECES, np.int32),
        np.empty((_FIRST_PIECES, 4), np.int64),
        np.empty(_FIRST_BYTES, np.uint8),
    )
