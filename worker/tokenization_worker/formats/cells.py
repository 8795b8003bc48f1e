"""Scattered objects: scratch files with the units of one window of a stream, sorted by the key of a shuffle.

A scattered object is a run of cells, in order of their keys, and a footer. A cell holds whole units, which are
documents or rows:

    parts      PART[parts]    of each unit, which is a row of the cell; a document is one part
    tokens     dtype[tokens]  u16 or u32

    footer     a row of CELL for each cell, then TAIL

All numbers are little-endian. The footer has the same size in every object of a run, so that a reader finds the rows of
some cells by the object's size. The CRC32C of a cell is that of the fields before it in its row, and of the cell: a
torn object is found out, and made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, pairwise
from typing import NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.segment import crc32c_of
from tokenization_worker.sequences.parts import PART
from tokenization_worker.sequences.units import OrderedUnits, Units
from tokenization_worker.storage.base import NotFound, Store, Upload

MAGIC = b"TOKCELL1"
CELL = np.dtype([("parts", "<i8"), ("tokens", "<i8"), ("offset", "<i8"), ("crc32c", "<u4")])
TAIL = np.dtype([("n_cells", "<i8"), ("magic", "V8")])


class ScatterLost(Exception):
    """A scattered object is missing, cut or torn. `number`: of the object; `version`: which object was bad; None where
    there was none."""

    def __init__(self, number: int, detail: str, version: str | None = None) -> None:
        super().__init__(number, detail, version)
        self.number = number
        self.detail = detail
        self.version = version


class Scattered(NamedTuple):
    """What was written: the object's size in bytes, a digest of its content, and the tokens of each cell i64[cells]."""

    size: int
    digest: str
    tokens: NDArray[np.int64]


def write_cells(
    upload: Upload, units: Units, order: NDArray[np.intp], cells: NDArray[np.int64], n_cells: int
) -> Scattered:
    """Write the units in `order`; `cells` i64[n_units] has the cell of each unit in that order, ascending."""
    rows = np.zeros(n_cells, dtype=CELL)
    borders = np.searchsorted(cells, np.arange(n_cells + 1)).tolist()
    ordered = OrderedUnits(units, order)
    offset = 0
    for number, (first, end) in enumerate(pairwise(borders)):
        parts = ordered.parts(first, end)
        rows[number] = (len(parts), int(ordered.lengths[first:end].sum()), offset, 0)
        crc = _begin_crc(rows[number])
        for array in chain([parts], (tokens for tokens, _ in ordered.tokens(first, end))):
            upload.write(array.view(np.uint8).data)
            crc = crc32c_of(array, start=crc)
            offset += array.nbytes
        rows[number]["crc32c"] = crc
    tail = np.zeros(1, dtype=TAIL)
    tail["n_cells"], tail["magic"] = n_cells, MAGIC
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
    """Reads cells of one object; raises `ScatterLost`. `size`: of the object, by its receipt; `row_length`: 0 where
    units are documents."""

    store: Store
    path: str
    number: int
    size: int
    n_cells: int
    row_length: int
    dtype: np.dtype[np.unsignedinteger]

    def read_rows(self, first: int, end: int) -> NDArray[np.void]:
        """The footer's rows of cells [first, end)."""
        start = self.size - TAIL.itemsize - (self.n_cells - first) * CELL.itemsize
        rows = np.frombuffer(self._read(start, start + (end - first) * CELL.itemsize), dtype=CELL)
        for row in rows[rows["parts"] < 1]:  # nobody asks for their cells
            self._check(row, b"")
        return rows

    def read_cells(self, rows: NDArray[np.void]) -> list[Units]:
        """The units of cells that follow each other, each with one unit or more, in one read."""
        starts = rows["offset"].tolist()
        ends = [start + self._size_of(row) for start, row in zip(starts, rows, strict=True)]
        if starts[1:] != ends[:-1]:
            raise self._torn(f"cells at {starts} that end at {ends}")
        data = memoryview(self._read(starts[0], ends[-1]))
        pieces = (data[start - starts[0] : end - starts[0]] for start, end in zip(starts, ends, strict=True))
        return [self._parse(row, piece) for row, piece in zip(rows, pieces, strict=True)]

    def _size_of(self, row: np.void) -> int:
        n_parts, n_tokens, offset = int(row["parts"]), int(row["tokens"]), int(row["offset"])
        if min(n_parts, n_tokens, offset) < 0:
            raise self._torn(f"a cell of {n_parts} parts and {n_tokens} tokens")
        return n_parts * PART.itemsize + n_tokens * self.dtype.itemsize

    def _parse(self, row: np.void, data: memoryview) -> Units:
        self._check(row, data)
        n_parts, n_tokens = int(row["parts"]), int(row["tokens"])
        parts = np.frombuffer(data, PART, n_parts)
        tokens = np.frombuffer(data, self.dtype, n_tokens, n_parts * PART.itemsize)
        if self.row_length:
            lengths = np.full(n_tokens // self.row_length, self.row_length, np.int64)
        else:
            lengths = parts["length"].astype(np.int64)
        return Units(tokens, lengths, parts)

    def _check(self, row: np.void, data: bytes | memoryview) -> None:
        """Compare the checksum of a cell, whose bytes are `data`, with its row's."""
        if crc32c_of(np.frombuffer(data, np.uint8), start=_begin_crc(row)) != int(row["crc32c"]):
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
