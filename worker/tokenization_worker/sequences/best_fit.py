"""Best-fit packing: documents into rows so that none is cut that fits. Pure.

Pieces of documents go, the longest first, to the row with the least room that holds them (best-fit decreasing; of rows
with equal room the one that has had this room longest, else a new row). A run of tokens is packed in blocks, each on
its own, so that memory does not grow with the corpus.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

LEAST_BLOCK = 1 << 24
MOST_BLOCK = 1 << 25
"""Tokens."""
_ROWS_A_BLOCK = 1024


def largest_block(row_length: int) -> int:
    """Tokens of a block at most; of one whose rows are shuffled, these."""
    return max(LEAST_BLOCK, min(_ROWS_A_BLOCK * row_length, MOST_BLOCK))


def block_borders(window_tokens: int, row_length: int) -> Numbers:
    """Where the blocks of a full window begin, and its end: i64[n + 1] of tokens, from 0."""
    n_blocks = -(-window_tokens // largest_block(row_length))
    return np.arange(n_blocks + 1) * window_tokens // n_blocks


class PackedRows(NamedTuple):
    """The pieces of a block's documents, row by row, and in a row in the order of the source. i64[n] each: `documents`,
    the number of each piece's document in the block; `offsets`, its first token in the document; `lengths`; `rows`,
    from 0; `starts`, its first token in the row.
    """

    documents: Numbers
    offsets: Numbers
    lengths: Numbers
    rows: Numbers
    starts: Numbers
    n_rows: int


def pack_documents(lengths: NDArray[np.integer], row_length: int, max_pieces: int | None = None) -> PackedRows:
    """Pack the documents of a block; `lengths` [n]: tokens of each, 0 for one that has none. A document that is longer
    than a row gives full rows and a rest. `max_pieces`: so many pieces at most in a row; None: any number.
    """
    lengths = lengths.astype(np.int64)
    n_pieces = -(-lengths // row_length)
    documents = np.repeat(np.arange(len(lengths)), n_pieces)
    offsets = (np.arange(len(documents)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)) * row_length
    sizes = np.minimum(lengths[documents] - offsets, row_length)
    rows = fit_pieces(sizes, row_length, max_pieces)
    order = np.argsort(rows, kind="stable")
    documents, offsets, sizes, rows = documents[order], offsets[order], sizes[order], rows[order]
    n_rows = int(rows[-1]) + 1 if len(rows) else 0
    ends = np.cumsum(sizes)
    first = np.searchsorted(rows, np.arange(n_rows))
    starts = ends - sizes
    starts -= starts[first][rows]
    return PackedRows(documents, offsets, sizes, rows, starts, n_rows)


def fit_pieces(sizes: Numbers, row_length: int, max_pieces: int | None = None) -> Numbers:
    """The row i64[n] of each piece of `sizes` i64[n], 1 to `row_length`. Rows are numbered in the order of their first
    pieces.
    """
    order = np.argsort(-sizes, kind="stable")
    found = np.empty(len(sizes), np.int64)
    found[order] = _fit_descending(sizes[order], row_length, max_pieces)
    _, first = np.unique(found, return_index=True)  # no row is empty
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[found]


def _fit_descending(sizes: Numbers, row_length: int, max_pieces: int | None) -> Numbers:
    """Rows in the order in which they were begun."""
    rooms = _Rooms(row_length, row_length if max_pieces is None else max_pieces)
    values, first = np.unique(-sizes, return_index=True)
    counts = np.diff(first, append=len(sizes))
    for size, count in zip((-values).tolist(), counts.tolist(), strict=True):
        rooms.place(size, count)
    return np.array(rooms.placed, np.int64)


class _Rooms:
    """Rows by the room that they have left, those of equal room in the order in which they got it. `placed`: the row of
    each piece. At most `most` pieces go into a row.
    """

    def __init__(self, row_length: int, most: int) -> None:
        self.placed: list[int] = []
        self._row_length = row_length
        self._most = most
        self._left: list[int] = []  # of each row, how many pieces it may still get
        self._rows: dict[int, deque[int]] = {}  # of each room
        self._rooms: list[int] = []  # that rows have, ascending

    def place(self, size: int, count: int) -> None:
        """Place `count` pieces of a size that is at most that of all before.

        The row with the least room that holds one gets as many as it holds: meanwhile none has less room.
        """
        while count:
            at = bisect_left(self._rooms, size)
            if at == len(self._rooms):
                self._begin_rows(size, count)
                return
            room = self._rooms[at]
            rows = self._rows[room]
            count = self._fill(rows, room, size, count)
            if not rows:
                del self._rows[room]
                self._rooms.remove(room)

    def _begin_rows(self, size: int, count: int) -> None:
        a_row = min(self._row_length // size, self._most)
        first = len(self._left)
        rows = range(first, first + -(-count // a_row))
        self._left.extend([self._most] * len(rows))
        self._fill(deque(rows), self._row_length, size, count)

    def _fill(self, rows: deque[int], room: int, size: int, count: int) -> int:
        """Place pieces into rows of equal room; returns how many are left."""
        left, placed = self._left, self.placed
        most = room // size
        while rows and count:
            row = rows.popleft()
            n_pieces = min(most, left[row], count)
            placed.extend([row] * n_pieces)
            left[row] -= n_pieces
            count -= n_pieces
            rest = room - n_pieces * size
            if rest and left[row]:
                others = self._rows.get(rest)
                if others is None:
                    others = self._rows[rest] = deque()
                    insort(self._rooms, rest)
                others.append(row)
        return count
