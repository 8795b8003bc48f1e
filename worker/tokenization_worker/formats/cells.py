"""Scattered objects: scratch files with the documents of one window of a stream, sorted by the key of a shuffle.

A scattered object is a run of cells, in order of their keys, and a footer. A cell holds whole documents:

    positions  i64[units]     byte offset of its record in the decompressed file; Parquet: row number
    files      u32[units]     number of the source file
    lengths    u32[units]     tokens of each document, delimiter included
    tokens     dtype[tokens]  u16 or u32

    footer     a row of CELL for each cell, then TAIL

All numbers are little-endian. The footer has the same size in every object of a run, so that a reader finds the rows of
some cells by the object's size. The CRC32C of a cell is that of the fields before it in its row, and of the cell: a
torn object is found out, and made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple, Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.segment import crc32c_of
from tokenization_worker.storage.base import NotFound, Store, Upload

MAGIC = b"TOKCELL1"
CELL = np.dtype([("units", "<i8"), ("tokens", "<i8"), ("offset", "<i8"), ("crc32c", "<u4")])
TAIL = np.dtype([("n_cells", "<i8"), ("magic", "V8")])

TokenArray = NDArray[np.unsignedinteger]

_GATHERED = 1 << 18
"""Tokens that are moved at once: their places take 8 bytes each."""


class ScatterLost(Exception):
    """A scattered object is missing, cut or torn. `number`: of the object; `version`: which object was bad; None where
    there was none."""

    def __init__(self, number: int, detail: str, version: str | None = None) -> None:
        super().__init__(number, detail, version)
        self.number = number
        self.detail = detail
        self.version = version


class Units(NamedTuple):
    """Documents: `tokens` u16/u32[n_tokens], and of each its tokens `lengths` u32[n], `files` u32[n], `positions`
    i64[n]."""

    tokens: TokenArray
    lengths: NDArray[np.uint32]
    files: NDArray[np.uint32]
    positions: NDArray[np.int64]

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """All units of the parts, one after the other."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def gather(units: Units, order: NDArray[np.intp]) -> Iterator[TokenArray]:
    """The tokens of units in `order`, some at a time; a document is never cut."""
    starts = np.cumsum(units.lengths, dtype=np.int64) - units.lengths
    ends = np.cumsum(units.lengths[order], dtype=np.int64)
    first = 0
    while first < len(order):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _GATHERED, side="right")))
        chosen = order[first:last]
        lengths = units.lengths[chosen].astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(starts[chosen] - begins, lengths)
        yield units.tokens[places]
        first = last


class Scattered(NamedTuple):
    """What was written: the object's size in bytes, a digest of its content, and the tokens of each cell i64[cells]."""

    size: int
    digest: str
    tokens: NDArray[np.int64]


def write_cells(upload: Upload, units: Units, order: NDArray[np.intp], cells: NDArray[np.int64], n: int) -> Scattered:
    """Write the units in `order`; `cells` i64[n_units] has the cell of each unit in that order, ascending."""
    rows = np.zeros(n, dtype=CELL)
    borders = np.searchsorted(cells, np.arange(n + 1))
    offset = 0
    for number in range(n):
        chosen = order[borders[number] : borders[number + 1]]
        lengths = units.lengths[chosen]
        rows[number] = (len(chosen), int(lengths.sum(dtype=np.int64)), offset, 0)
        crc = _begin_crc(rows[number])
        places: list[NDArray[Any]] = [units.positions[chosen], units.files[chosen], lengths]
        for array in chain(places, gather(units, chosen)):
            upload.write(array.data)
            crc = crc32c_of(array, start=crc)
            offset += array.nbytes
        rows[number]["crc32c"] = crc
    tail = np.zeros(1, dtype=TAIL)
    tail["n_cells"], tail["magic"] = n, MAGIC
    for array in (rows, tail):
        upload.write(array.tobytes())
    digest = sha256(rows.tobytes()).hexdigest()[:32]
    return Scattered(offset + rows.nbytes + tail.nbytes, digest, rows["tokens"].astype(np.int64))


def _begin_crc(row: np.void) -> int:
    """CRC32C of the fields of a row before its checksum."""
    crc: int = google_crc32c.value(row.tobytes()[: -CELL["crc32c"].itemsize])
    return crc


@dataclass(frozen=True, slots=True)
class CellReader:
    """Reads cells of one object; raises `ScatterLost`. `size`: of the object, by its receipt."""

    store: Store
    path: str
    number: int
    size: int
    n_cells: int
    dtype: np.dtype[np.unsignedinteger]

    def read_rows(self, first: int, end: int) -> NDArray[np.void]:
        """The footer's rows of cells [first, end)."""
        start = self.size - TAIL.itemsize - (self.n_cells - first) * CELL.itemsize
        rows = np.frombuffer(self._read(start, start + (end - first) * CELL.itemsize), dtype=CELL)
        for row in rows[rows["units"] == 0]:  # nobody asks for their cells
            self._check(row, b"")
        return rows

    def read_cell(self, row: np.void) -> Units:
        """The units of the cell that the footer's `row` describes."""
        units, tokens, offset = int(row["units"]), int(row["tokens"]), int(row["offset"])
        if min(units, tokens, offset) < 0:
            raise self._torn(f"a cell of {units} units and {tokens} tokens")
        data = self._read(offset, offset + units * 16 + tokens * self.dtype.itemsize)
        self._check(row, data)
        positions = np.frombuffer(data, "<i8", units)
        files = np.frombuffer(data, "<u4", units, units * 8)
        lengths = np.frombuffer(data, "<u4", units, units * 12)
        return Units(np.frombuffer(data, self.dtype, tokens, units * 16), lengths, files, positions)

    def _check(self, row: np.void, data: bytes) -> None:
        """Compare the checksum of a cell, whose bytes are `data`, with its row's."""
        if google_crc32c.extend(_begin_crc(row), data) != int(row["crc32c"]):
            raise self._torn(f"wrong checksum of the cell at byte {int(row['offset'])}")

    def _read(self, start: int, end: int) -> bytes:
        if start < 0 or end > self.size:
            raise self._torn(f"bytes {start} to {end} of {self.size}")
        try:
            data = self.store.read_range(self.path, start, end)
        except NotFound as error:
            raise ScatterLost(self.number, f"{self.path} does not exist") from error
        if len(data) != end - start:
            raise self._torn(f"ends at {start + len(data)}, expected {end}")
        return data

    def _torn(self, detail: str) -> ScatterLost:
        entry = self.store.stat(self.path)
        return ScatterLost(self.number, f"{self.path}: {detail}", None if entry is None else entry.version)
