"""One file a shard, a header and then the tokens: what the decoders of `.npy`, raw and llm.c files have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tokenization_worker.verification.formats.base import (
    DType,
    Expected,
    FolderIndex,
    Problem,
    ReadRange,
    TokenArray,
    whole_tokens,
)

_SHOWN_BYTES = 128
"""Of a header in a finding: the whole one of `.npy`; most of llm.c's 1024 are zeros."""


class Header(Protocol):
    """What a format has before its tokens."""

    size: int
    """In bytes."""

    def tokens(self, head: bytes, dtype: DType, row_length: int, /) -> int | None:
        """The number of tokens that a header of `size` bytes says; None where it is none of this format and type, or
        of rows of another length (0: of one run)."""
        ...


class FlatDecoder:
    """Shards of one flat file."""

    has_random_access = True
    folder_index: FolderIndex | None = None

    def __init__(self, suffix: str, header: Header) -> None:
        self.suffixes: tuple[str, ...] = (suffix,)
        self._header = header

    def size(self, number: int, tokens: int, dtype: DType) -> int:
        del number
        return self._header.size + tokens * dtype.itemsize

    def scan(self, dtype: DType, row_length: int = 0) -> FlatScan:
        return FlatScan(dtype, self._header, row_length)

    def read(self, files: ReadRange, start: int, end: int, dtype: DType) -> TokenArray:
        first, size = self._header.size, dtype.itemsize
        return whole_tokens([files(0, first + start * size, first + end * size)], dtype)


class FlatScan:
    """A pass over one flat file."""

    def __init__(self, dtype: DType, header: Header, row_length: int = 0) -> None:
        self._dtype = dtype
        self._header = header
        self._row_length = row_length
        self._head = b""
        self._rest = b""  # of a token that goes on in the next bytes
        self.tokens_seen = 0

    def take(self, number: int, data: bytes) -> TokenArray:
        del number
        missing = self._header.size - len(self._head)
        self._head += data[:missing]
        body = data[missing:] if missing else data
        tokens = whole_tokens([self._rest, body], self._dtype) if self._rest else whole_tokens([body], self._dtype)
        self._rest = (self._rest + body)[tokens.nbytes :] if len(self._rest) + len(body) > tokens.nbytes else b""
        self.tokens_seen += len(tokens)
        return tokens

    @property
    def tokens(self) -> int | None:
        if len(self._head) < self._header.size:
            return None
        return self._header.tokens(self._head, self._dtype, self._row_length)

    def problems(self, expected: Expected) -> Iterator[Problem]:
        if self.tokens != expected.tokens:
            length = self._row_length
            shape = f"{expected.tokens // length:,} rows of {length:,}" if length else f"{expected.tokens:,}"
            found = repr(self._head[:_SHOWN_BYTES])
            yield Problem(0, f"a header of {shape} tokens of {self._dtype.name}", found)
