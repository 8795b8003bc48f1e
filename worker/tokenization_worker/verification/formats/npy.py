"""numpy's `.npy`, version 1.0 (NEP 1), one dimension: 128 bytes of header, then the tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.formats.base import DType, Problem, ReadRange, TokenArray, whole_tokens

_HEADER_BYTES = 128

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '(<u[24])', 'fortran_order': False, 'shape': \(([0-9]{1,18}),\), \} *\n"
)
"""numpy parses a shard's header as Python, so a header in any other spelling than numpy's is refused."""


class NpyDecoder:
    """Shards of one `.npy` file."""

    suffixes: tuple[str, ...] = (".npy",)

    def size(self, number: int, tokens: int, dtype: DType) -> int:
        del number
        return _HEADER_BYTES + tokens * dtype.itemsize

    def scan(self, dtype: DType) -> NpyScan:
        return NpyScan(dtype)

    def read(self, files: ReadRange, start: int, end: int, dtype: DType) -> TokenArray:
        size = dtype.itemsize
        return whole_tokens([files(0, _HEADER_BYTES + start * size, _HEADER_BYTES + end * size)], dtype)


class NpyScan:
    """A pass over one `.npy` file."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._head = b""
        self._rest = b""  # of a token that goes on in the next bytes
        self.tokens_seen = 0

    def take(self, number: int, data: bytes) -> TokenArray:
        del number
        missing = _HEADER_BYTES - len(self._head)
        self._head += data[:missing]
        body = data[missing:] if missing else data
        tokens = whole_tokens([self._rest, body], self._dtype) if self._rest else whole_tokens([body], self._dtype)
        self._rest = (self._rest + body)[tokens.nbytes :] if len(self._rest) + len(body) > tokens.nbytes else b""
        self.tokens_seen += len(tokens)
        return tokens

    @property
    def tokens(self) -> int | None:
        found = _HEADER.fullmatch(self._head)
        is_ours = found and len(self._head) == _HEADER_BYTES and found[1].decode() == self._dtype.str
        return int(found[2]) if found and is_ours else None

    def problems(self, expected_tokens: int, lengths: NDArray[np.uint32] | None) -> Iterator[Problem]:
        del lengths
        if self.tokens != expected_tokens:
            yield Problem(0, f"a header of {expected_tokens:,} tokens of {self._dtype.name}", repr(self._head))
