"""Computes from page headers how many rows of a Parquet column may be decoded at once.

The average of a column chunk says nothing about its largest rows: a dictionary of one value of 900 KB, and 3,000 rows
that point to it, are a file of 300 bytes with an average of 300 bytes a row, and 2.7 GB decoded. A page's header says
how many rows it holds and how they are written, and that bounds what they decode to. Pages are looked at when pyarrow
reads them, which reads some ahead; where no page is known yet, one row is asked for: it may be all of the chunk.
No I/O here, nothing is decoded.
Layout of headers: parquet.thrift in the compact protocol of Thrift.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

MOST_ROWS = 512
"""Decoded at once."""

PAGE_TEXT_BYTES = 1 << 20
"""Of text decoded at once where a page says how much it holds: then a batch is at most this and two pages."""

REPEATED_BYTES = 64 << 20
"""Decoded at once, at the very most, where a page repeats what stands elsewhere: of the rows of a dictionary each may
be the whole dictionary. One row is decoded however large it is. At the peak pyarrow holds 3.5 times as much
(2026-11-23)."""

POINTERS_AT_ONCE = 1 << 16
"""Rows at once where a column is kept as a dictionary, which pyarrow copies into every batch."""

_POINTER_BYTES = 2
"""Stored, of a row that points to one of up to 65,536 values; a text of its own takes more."""

_MOST_HEADER_BYTES = 64 << 10
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PLAIN, _DELTA_LENGTH = 0, 6
_POINTERS = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY
_DELTA = "DELTA_BYTE_ARRAY"  # each row may begin like the one before


class Chunk(NamedTuple):
    """A column chunk as the footer has it; it lies at [start, end) of the file.

    `dictionary_bytes` are stored. What the footer says of decompressed sizes is not used: it may say anything.
    """

    start: int
    end: int
    dictionary_bytes: int
    encodings: Sequence[str]
    rows: int = 0

    @property
    def has_pointers(self) -> bool:
        """Whether rows point into the dictionary; rows may also stand behind one that none of them uses."""
        return "RLE_DICTIONARY" in self.encodings or "PLAIN_DICTIONARY" in self.encodings

    @property
    def is_mostly_dictionary(self) -> bool:
        """Whether nearly all rows point into the dictionary, so that it is best kept as one."""
        stored = self.end - self.start
        others = stored - self.dictionary_bytes
        few = max(stored // 4 + (64 << 10), _POINTER_BYTES * self.rows)
        return self.dictionary_bytes > 0 and others <= few and _DELTA not in self.encodings


class Page(NamedTuple):
    """Rows [first, end) of the row group; `share` is the part of a batch that one of them may fill."""

    first: int
    end: int
    share: float


class PageWalk:
    """The pages of one column chunk; see `rows_at_once`.

    `keeps_dictionary`: rows that point into the dictionary are not decoded. `dictionary_values`: those that the
    dictionary's page has, 0 where no such page has come.
    """

    def __init__(self, chunk: Chunk, *, keeps_dictionary: bool) -> None:
        self.dictionary_values = 0
        self._dictionary_bytes = 0
        self._next = chunk.start  # of the next header
        self._end = chunk.end
        self._keeps_dictionary = keeps_dictionary
        self._begun = b""  # of a header whose end has not come yet
        self._known = True
        self._rows = 0  # of the pages that were seen
        self._pages: deque[Page] = deque()

    def feed(self, offset: int, data: bytes) -> None:
        """Look at stored bytes, which come in order."""
        stop = offset + len(data)
        while self._known and self._next < min(stop, self._end):
            begin = self._next - offset
            head = data
            if begin < 0:
                if len(self._begun) != -begin:  # bytes were left out
                    self._known = False
                    return
                head, begin = self._begun + data[:_MOST_HEADER_BYTES], 0
            try:
                end, header = _read_struct(head, begin)
                self._add(header)
                self._next += end - begin + _number(header, 3)
                self._begun = b""
            except IndexError:
                self._begun = head[begin:]
                self._known = len(self._begun) < _MOST_HEADER_BYTES
                return
            except (KeyError, TypeError, ValueError):
                self._known = False

    def _add(self, header: dict[int, object]) -> None:
        kind, decoded_bytes = _number(header, 1), _number(header, 2)
        if kind == _DICTIONARY_PAGE:
            self._dictionary_bytes = decoded_bytes
            self.dictionary_values = _number(header, 7, 1)
        elif kind == _DATA_PAGE:
            self._add_rows(_number(header, 5, 1), _number(header, 5, 2), decoded_bytes)
        elif kind == _DATA_PAGE_V2:
            self._add_rows(_number(header, 8, 3), _number(header, 8, 4), decoded_bytes)

    def _add_rows(self, rows: int, encoding: int, decoded_bytes: int) -> None:
        if encoding in (_PLAIN, _DELTA_LENGTH):
            share = decoded_bytes / max(1, rows) / PAGE_TEXT_BYTES
        elif encoding in _POINTERS and self._keeps_dictionary:
            share = 1 / POINTERS_AT_ONCE
        elif encoding in _POINTERS:
            share = self._dictionary_bytes / REPEATED_BYTES
        else:  # a row may repeat all that stands before it in the page
            share = decoded_bytes / REPEATED_BYTES
        self._pages.append(Page(self._rows, self._rows + rows, share))
        self._rows += rows

    def rows_at_once(self, row: int, most: int = MOST_ROWS) -> int:
        """How many rows from `row` on may be decoded together: 1 where no page is known that holds them."""
        if not self._known:
            return 1
        while self._pages and self._pages[0].end <= row:
            self._pages.popleft()
        rows, room = 0, 1.0
        for page in self._pages:
            there = min(page.end - max(page.first, row), most - rows)
            fitting = min(there, int(room / page.share)) if page.share else there
            rows += fitting
            room -= fitting * page.share
            if fitting < there or rows >= most:
                break
        return max(1, rows)


def _number(header: dict[int, object], *path: int) -> int:
    value: object = header
    for key in path:
        if not isinstance(value, dict):
            raise TypeError(value)
        value = value[key]
    if not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _read_struct(data: bytes, at: int, depth: int = 0) -> tuple[int, dict[int, object]]:
    """Where a struct ends, and its fields by number; raises IndexError where `data` ends before it."""
    if depth > 4:
        raise ValueError("nested deeper than any header is")
    fields: dict[int, object] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return at, fields
        if head >> 4:
            number += head >> 4
        else:
            at, number = _read_integer(data, at)
        at, fields[number] = _read_value(data, at, head & 15, depth)


def _read_value(data: bytes, at: int, type_: int, depth: int) -> tuple[int, object]:
    if type_ in (1, 2):  # true and false stand in the field's head
        return at, type_ == 1
    if type_ == 3:
        return at + 1, data[at]
    if type_ in (4, 5, 6):
        return _read_integer(data, at)
    if type_ == 8:
        at, size = _read_varint(data, at)
        if at + size > len(data):
            raise IndexError(size)
        return at + size, None
    if type_ == 12:
        return _read_struct(data, at, depth + 1)
    raise ValueError(f"no header has a field of type {type_}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return at, value
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    at, value = _read_varint(data, at)
    return at, value >> 1 ^ -(value & 1)
