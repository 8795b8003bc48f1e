"""llm.c's `.bin`: 1024 bytes of header (256 little-endian int32), then the tokens."""

from __future__ import annotations

import struct

from tokenization_worker.verification.formats.base import DType
from tokenization_worker.verification.formats.flat import FlatDecoder

_BEGINNINGS = {"<u2": (20240520, 1), "<u4": (20240801, 7)}
"""Magic and version: of GPT-2's and of Llama 3's data files."""


class _LlmcHeader:
    size = 1024

    def tokens(self, head: bytes, dtype: DType, row_length: int) -> int | None:
        del row_length  # rows stand end to end
        magic, version, tokens, *rest = struct.unpack("<256i", head)
        return tokens if (magic, version) == _BEGINNINGS[dtype.str] and not any(rest) else None


LLMC = FlatDecoder(".bin", _LlmcHeader())
