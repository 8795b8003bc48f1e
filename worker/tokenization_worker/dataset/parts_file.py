"""Reads the parts of some rows out of a shard's file of parts: mapped where it is local, else by a range or two.

Parts are sorted by row, and rows hold about equally many, so a guess is near: from a far store 64 KiB around it nearly
always hold the row.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np

from tokenization_worker.formats.base import ShardUnreadable, StoredFile
from tokenization_worker.formats.parts import header_of
from tokenization_worker.sequences.parts import PART, PartArray
from tokenization_worker.storage.base import NotFound

_BLOCK = 2340
"""Parts that a read fetches at least: 64 KiB, which takes no longer than less."""


class PartsFile:
    """The parts of one shard of `rows` rows. Every method raises `ShardUnreadable`."""

    def __init__(self, file: StoredFile, rows: int) -> None:
        self._file = file
        self._rows = rows

    def read(self, first: int, end: int) -> PartArray:
        """The parts of rows [first, end), a new array."""
        path = self._file.store.local_path(self._file.path)
        if path is not None:
            rows = self._mapped["row"]  # bisect looks at a few; np.searchsorted would copy all of a field
            start = bisect_left(rows, first)
            return np.array(self._mapped[start : bisect_left(rows, end, lo=start)])
        start = self._find(first)
        stop = self._find(end) if end < self._rows else self._count
        return self._read(start, stop)

    @cached_property
    def _count(self) -> int:
        """How many parts it has. The first access compares size and header."""
        size = self._file.size
        count, rest = divmod(size - len(header_of(0)), PART.itemsize)
        header = header_of(count)
        try:
            found = self._file.store.read_range(self._file.path, 0, len(header))
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        if rest or count < 1 or found != header:
            raise ShardUnreadable(self._file, f"has another header than that of {count:,} parts")
        return count

    @cached_property
    def _mapped(self) -> PartArray:
        count, path = self._count, self._file.store.local_path(self._file.path)
        assert path is not None
        try:
            return np.asarray(np.memmap(path, PART, "r", len(header_of(0)), (count,)))
        except (FileNotFoundError, ValueError) as error:  # it went, or was cut, since its header was read
            raise ShardUnreadable(self._file, str(error)) from error

    def _find(self, row: int) -> int:
        """The number of the first part of a row at or behind `row`."""
        low, high = 0, self._count  # it is in [low, high]
        guess = self._count * row // self._rows
        while low < high:
            start = max(low, min(guess - _BLOCK // 2, high - 1))
            rows = self._read(start, min(start + _BLOCK, self._count))["row"]
            if rows[0] >= row:
                high = start
            elif rows[-1] < row:
                low = start + len(rows)
            else:
                return start + int(np.searchsorted(rows, row))
            guess = (low + high) // 2
        return low

    def _read(self, start: int, stop: int) -> PartArray:
        first = len(header_of(0))
        at = (first + start * PART.itemsize, first + stop * PART.itemsize)
        try:
            data = self._file.store.read_range(self._file.path, *at)
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        if len(data) != at[1] - at[0]:
            raise ShardUnreadable(self._file, f"ends at byte {at[0] + len(data):,}")
        return np.frombuffer(data, dtype=PART)
