"""numpy `.npy`, version 1.0: a header of 128 bytes, then the tokens, little-endian.

One dimension; with rows two, (rows, tokens of a row).

What nanoGPT and its kin load with `np.load` or `np.memmap(..., offset=128)`. Format: NEP 1.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np

from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.flat import FlatFormat

_HEADER_BYTES = 128


def _header(shape: ShardShape) -> bytes:
    """The header that numpy writes."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer,
        {"descr": shape.dtype.str, "fortran_order": False, "shape": _dimensions(shape)},
    )
    data = buffer.getvalue()
    assert len(data) == _HEADER_BYTES
    return data


def _dimensions(shape: ShardShape) -> tuple[int, ...]:
    return (shape.rows, shape.row_length) if shape.row_length else (shape.tokens,)


NPY = FlatFormat(".npy", _header)
