"""Token dtypes, in memory and in files: little-endian on every machine."""

from __future__ import annotations

import numpy as np

from tokenization_worker.api.data import DType

NUMPY_DTYPES: dict[DType, np.dtype[np.unsignedinteger]] = {
    DType.UINT16: np.dtype("<u2"),
    DType.UINT32: np.dtype("<u4"),
}
