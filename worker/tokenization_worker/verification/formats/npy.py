"""numpy's `.npy`, version 1.0 (NEP 1): 128 bytes of header, then the tokens. Rows have two dimensions."""

from __future__ import annotations

import re

from tokenization_worker.verification.formats.base import DType
from tokenization_worker.verification.formats.flat import FlatDecoder

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '(<u[24])', 'fortran_order': False, "
    rb"'shape': \(([0-9]{1,18}),(?: ([1-9][0-9]{0,8}))?\), \} *\n"
)
"""numpy parses a shard's header as Python, so a header in any other spelling than numpy's is refused."""


class _NpyHeader:
    size = 128

    def tokens(self, head: bytes, dtype: DType, row_length: int) -> int | None:
        found = _HEADER.fullmatch(head)
        if not found or found[1].decode() != dtype.str or int(found[3] or 0) != row_length:
            return None
        return int(found[2]) * (row_length or 1)


NPY = FlatDecoder(".npy", _NpyHeader())
