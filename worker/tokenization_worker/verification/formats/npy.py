"""numpy's `.npy`, version 1.0 (NEP 1), one dimension: 128 bytes of header, then the tokens."""

from __future__ import annotations

import re

from tokenization_worker.verification.formats.base import DType
from tokenization_worker.verification.formats.flat import FlatDecoder

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '(<u[24])', 'fortran_order': False, 'shape': \(([0-9]{1,18}),\), \} *\n"
)
"""numpy parses a shard's header as Python, so a header in any other spelling than numpy's is refused."""


class _NpyHeader:
    size = 128

    def tokens(self, head: bytes, dtype: DType) -> int | None:
        found = _HEADER.fullmatch(head)
        return int(found[2]) if found and found[1].decode() == dtype.str else None


NPY = FlatDecoder(".npy", _NpyHeader())
