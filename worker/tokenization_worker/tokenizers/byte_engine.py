"""The tokenizer "bytes": one token for each byte of UTF-8, 0 to 255, and the delimiter, 256.

It needs no file and no library; its engine is its own reference, and there is nothing to accelerate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenization_worker.tokenizers.base import Encoded

DELIMITER_TOKEN = "<|endoftext|>"
DELIMITER_ID = 256
VOCAB_SIZE = 257


class ByteEngine:
    """UTF-8 bytes as ids."""

    name = "bytes"

    def encode(self, texts: Sequence[str]) -> Encoded:
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(part) for part in encoded], dtype=np.int64)
        return Encoded(np.frombuffer(b"".join(encoded), np.uint8).astype(np.uint32), ends)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at; the delimiter shows as its name."""
        pieces = [bytes([i]) if i < 256 else DELIMITER_TOKEN.encode() if i == DELIMITER_ID else b"\xff" for i in ids]
        return b"".join(pieces).decode(errors="replace")
