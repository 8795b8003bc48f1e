"""Parts: the pieces of documents in rows, and how runs of tokens are cut into rows.

A **row** is a sequence of `length` tokens. A **part** is the piece of one document in a row. What no part covers is
padding, and always the end of a row. Invariant: parts are sorted by (row, start) and do not overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PART = np.dtype(
    [
        ("position", "<u8"),  # of the document's record in its file: byte offset, or number of the row
        ("file", "<u4"),  # row of files.jsonl.zst
        ("row", "<u4"),  # of the shard
        ("start", "<u4"),  # token in the row
        ("length", "<u4"),  # tokens
        ("offset", "<u4"),  # tokens of the document, delimiters included, that stand before this part
    ]
)
"""Packed, little-endian: 28 bytes."""

PartArray = NDArray[np.void]
"""Of type `PART`."""

NO_PARTS: PartArray = np.empty(0, dtype=PART)


class Pieces(NamedTuple):
    """Pieces of documents that follow one another in a run of tokens; one entry a piece, none of them empty.

    `files`, `positions`, `lengths`, `offsets` i64[n]: as the fields of `PART`.
    """

    files: NDArray[np.int64]
    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    offsets: NDArray[np.int64]


_NONE = np.empty(0, dtype=np.int64)

NO_PIECES = Pieces(_NONE, _NONE, _NONE, _NONE)


def cut_into_rows(pieces: Pieces, start: int, row_length: int) -> PartArray:
    """The parts of pieces of which the first begins at token `start` of a shard."""
    ends = start + np.cumsum(pieces.lengths)
    starts = ends - pieces.lengths
    first = starts // row_length
    rows_each = (ends - 1) // row_length - first + 1
    piece = np.repeat(np.arange(len(ends)), rows_each)
    row = np.arange(len(piece)) - np.repeat(np.cumsum(rows_each) - rows_each, rows_each) + first[piece]
    begin = np.maximum(starts[piece], row * row_length)
    parts = np.empty(len(piece), dtype=PART)
    parts["position"] = pieces.positions[piece]
    parts["file"] = pieces.files[piece]
    parts["row"] = row
    parts["start"] = begin - row * row_length
    parts["length"] = np.minimum(ends[piece], (row + 1) * row_length) - begin
    parts["offset"] = pieces.offsets[piece] + begin - starts[piece]
    return parts
