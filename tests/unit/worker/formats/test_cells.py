"""Cells give back the documents that were written, and a byte that is not as it was written is found out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tokenization_worker.formats.cells import CellReader, ScatterLost, write_cells
from tokenization_worker.sequences.units import Units, parts_of_documents
from tokenization_worker.storage.local.store import LocalStore

U16 = np.dtype("<u2")
CELLS = 4
ORDER, CELL_OF = [2, 0, 1], [0, 2, 2]
"""Of three documents; cells 1 and 3 are empty."""


def write(store: LocalStore) -> CellReader:
    lengths = np.array([3, 2, 5])
    parts = parts_of_documents(np.array([7, 8, 9]), np.array([100, 0, 1 << 40]), lengths)
    units = Units(np.arange(10, dtype=U16), lengths, parts)
    with store.upload("cells") as upload:
        written = write_cells(upload, units, np.array(ORDER), np.array(CELL_OF), CELLS)
        upload.commit()
    assert written.tokens.tolist() == [5, 0, 5, 0]
    return CellReader(store, "cells", 1, written.size, CELLS, 0, U16)


def read(reader: CellReader, first: int, end: int) -> list[list[tuple[list[int], int, int]]]:
    """Of each cell with documents these: tokens, file, position. As a shard is read: nobody asks for a cell that says
    it is empty."""
    rows = reader.read_rows(first, end)
    found = []
    for tokens, lengths, parts in reader.read_cells(rows[rows["parts"] > 0]) if rows["parts"].any() else ():
        borders = [0, *np.cumsum(lengths).tolist()]
        places = zip(pairwise(borders), parts["file"].tolist(), parts["position"].tolist(), strict=True)
        found.append([(tokens[start:end].tolist(), file, position) for (start, end), file, position in places])
    return found


def test_cells_hold_their_documents(tmp_path: Path) -> None:
    reader = write(LocalStore(tmp_path))
    third = [([5, 6, 7, 8, 9], 9, 1 << 40)]
    others = [([0, 1, 2], 7, 100), ([3, 4], 8, 0)]
    assert read(reader, 0, CELLS) == [third, others]
    assert read(reader, 1, 3) == [others]
    assert read(reader, 1, 2) == []


def test_any_flipped_bit_of_cells_or_rows_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    reader = write(store)
    path = tmp_path / "cells"
    good = path.read_bytes()
    assert len(good) == reader.size
    for at in range(len(good) - 16):  # the tail is for people: a receipt has what it says
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(ScatterLost):
            read(reader, 0, CELLS)
    for size in range(len(good)):
        path.write_bytes(good[:size])
        if size < len(good) - 16:
            with pytest.raises(ScatterLost):
                read(reader, 0, CELLS)
    path.unlink()
    with pytest.raises(ScatterLost, match="does not exist"):
        read(reader, 0, CELLS)
