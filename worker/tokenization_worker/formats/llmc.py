"""llm.c's `.bin`: a header of 256 int32, then the tokens, little-endian.

Header: magic, version, number of tokens, then zeros. Magic and version are 20240520 and 1 for u16 tokens (GPT-2's data
files), 20240801 and 7 for u32 tokens (Llama 3's). Source: llm.c `dev/data/data_common.py` and `llmc/dataloader.h`.
"""

from __future__ import annotations

import numpy as np

from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.flat import FlatFormat

_HEADER_FIELDS = 256
_MAGIC_AND_VERSION = {2: (20240520, 1), 4: (20240801, 7)}
"""By the bytes of a token."""


def _header(shape: ShardShape) -> bytes:
    header = np.zeros(_HEADER_FIELDS, dtype="<i4")
    header[:3] = (*_MAGIC_AND_VERSION[shape.dtype.itemsize], shape.tokens)
    return header.tobytes()


LLMC = FlatFormat(".bin", _header)
