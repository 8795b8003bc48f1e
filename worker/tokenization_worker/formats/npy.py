"""numpy `.npy`, version 1.0: a 128-byte header, then the tokens, little-endian, one dimension.

What nanoGPT and its kin load with `np.load` or `np.memmap(..., offset=128)`. Format: NEP 1.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np

SUFFIX = ".npy"
HEADER_BYTES = 128


def header(tokens: int, dtype: np.dtype[np.unsignedinteger]) -> bytes:
    """The header of a shard of `tokens` tokens of `dtype`."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer,
        {"descr": dtype.str, "fortran_order": False, "shape": (tokens,)},
    )
    data = buffer.getvalue()
    assert len(data) == HEADER_BYTES
    return data
