"""Reads the parts of one row out of a shard's file of parts: mapped where it is local, else mostly by one range.

Before its first row the file is compared with its CRC32C in the shards table. A local file is read whole for that,
through its map: 0.3 ms for one of 4 MB (a shard of 100 million tokens) in the system's memory, 3 ms from a disk
(2026-11). Of an object in a far store the checksum that the store keeps is asked for, which takes one small call.

Parts are sorted by row, and a row has at least one. From a far store each read is of 64 KiB, which takes no longer than
less, around where the row must be, going by the reads before. After a few of them that is the only one.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import google_crc32c
import numpy as np

from tokenization_worker.formats.base import ShardUnreadable, StoredFile
from tokenization_worker.formats.parts import header_of
from tokenization_worker.sequences.parts import PART, PartArray
from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.checksums import CHUNK_BYTES, crc32c_of_bytes

_BLOCK = 2340
"""Parts of a read: 64 KiB."""

_MOST_MARKS = 1024
"""Two a read: of a file of 200,000 parts (a shard of 100 million tokens) that is one for every 200."""

_MOST_TRIES = 64
"""Half of them halve what is left, so no sorted file needs more."""


class PartsFile:
    """The parts of one shard of `rows` rows. Every method raises `ShardUnreadable`. Threads may share it.

    It has no lock, also none of `cached_property`: a fork would find it held by a thread that it does not have. Two
    threads may open a file twice.
    """

    def __init__(self, file: StoredFile, rows: int) -> None:
        self._file = file
        self._rows = rows
        # (row, number of a part of it), in order. Threads replace it, and may lose each other's marks.
        self._marks: tuple[tuple[int, int], ...] = ()
        self._count = 0  # until its header was read
        self._mapped: PartArray | None = None

    def read(self, row: int) -> PartArray:
        """The parts of `row`, in order; a new array."""
        parts = self._mapped if self._mapped is not None else self._open()
        if parts is None:
            return self._read_far(row)
        rows = parts["row"]  # bisect looks at a few; np.searchsorted would copy all of a field
        start = bisect_left(rows, row)
        return np.array(parts[start : bisect_left(rows, row + 1, lo=start)])

    def check(self, crc32c: int) -> None:
        """Raise unless the file has this CRC32C."""
        parts = self._open()
        found = self._stored_crc32c() if parts is None else self._mapped_crc32c(parts)
        if found != crc32c:
            raise ShardUnreadable(self._file, f"is corrupt: its CRC32C is {found:08x}, expected {crc32c:08x}")

    def _open(self) -> PartArray | None:
        """All parts of a local file, mapped; None where the store is far away."""
        if not self._count:
            self._count = self._read_count()
        path = self._file.store.local_path(self._file.path)
        if path is not None:
            self._mapped = self._map(path)
        return self._mapped

    def _mapped_crc32c(self, parts: PartArray) -> int:
        crc: int = google_crc32c.value(header_of(self._count))  # the header is this one
        data = parts.view(np.uint8)
        for start in range(0, len(data), CHUNK_BYTES):  # other threads go on between chunks
            crc = google_crc32c.extend(crc, data[start : start + CHUNK_BYTES])
        return crc

    def _stored_crc32c(self) -> int:
        """As the store keeps it; by all bytes where the store keeps none."""
        store, path, size = self._file.store, self._file.path, self._file.size
        entry = store.stat(path)
        if entry is None:
            raise ShardUnreadable(self._file, "is missing")
        if entry.size != size:
            raise ShardUnreadable(self._file, f"has {entry.size:,} bytes, expected {size:,}")
        return crc32c_of_bytes(store, path, size) if entry.crc32c is None else entry.crc32c

    def _read_count(self) -> int:
        """How many parts it has, by its size and header."""
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

    def _map(self, path: Path) -> PartArray:
        try:
            return np.asarray(np.memmap(path, PART, "r", len(header_of(0)), (self._count,)))
        except (FileNotFoundError, ValueError) as error:  # it went, or was cut, since its header was read
            raise ShardUnreadable(self._file, str(error)) from error

    def _read_far(self, row: int) -> PartArray:
        start, found = self._find(row)
        while found["row"][-1] == row and start + len(found) < self._count:
            found = np.concatenate([found, self._read(start + len(found))])
        return found[: int(np.searchsorted(found["row"], row, side="right"))].copy()

    def _find(self, row: int) -> tuple[int, PartArray]:
        """The number of the first part of `row`, and the parts from it on to the end of a block."""
        marks = self._marks or ((-1, 0), (self._rows, self._count))
        for tries in range(_MOST_TRIES):
            place = bisect_left(marks, (row, 0))
            (row_before, low), (row_behind, high) = marks[place - 1], marks[place]
            share = (high - low) * (row - row_before) // (row_behind - row_before)
            # By turns with halving, since rows of very unequal numbers of parts mislead it.
            guess = low + (share if tries % 2 == 0 else (high - low) // 2)
            start = max(low, guess - _BLOCK // 2)
            parts = self._read(start)
            rows = parts["row"]
            marks = tuple(sorted({*marks, (int(rows[0]), start), (int(rows[-1]), start + len(parts) - 1)}))
            first = int(np.searchsorted(rows, row))
            if first < len(rows) and (first or start == low):  # the parts before it are of rows before
                if rows[first] != row:
                    break
                if len(marks) <= _MOST_MARKS:
                    self._marks = marks
                return start + first, parts[first:]
        raise ShardUnreadable(self._file, f"has no parts of row {row:,}, or is not sorted")

    def _read(self, start: int) -> PartArray:
        """A block of parts from number `start` on."""
        stop = min(start + _BLOCK, self._count)
        first = len(header_of(0))
        at = (first + start * PART.itemsize, first + stop * PART.itemsize)
        try:
            data = self._file.store.read_range(self._file.path, *at)
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        if len(data) != at[1] - at[0]:
            raise ShardUnreadable(self._file, f"ends at byte {at[0] + len(data):,}")
        return np.frombuffer(data, dtype=PART)
