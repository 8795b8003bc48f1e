"""Megatron's indexed dataset: `.bin` has the tokens alone, `.idx` the lengths and places of its entries.

An entry is a document, or a row.

`.idx`: "MMIDIDX" and two zero bytes, u64 1, u8 type (8: uint16, 4: int32), u64 n, u64 n + 1, then i32[n] lengths,
i64[n] byte offsets, i64[n + 1] 0 to n.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenization_worker.verification.formats.base import (
    DType,
    Expected,
    FolderIndex,
    Problem,
    ReadRange,
    TokenArray,
    no_tokens,
)
from tokenization_worker.verification.formats.flat import FlatScan
from tokenization_worker.verification.formats.raw import RAW

_INDEX = 1
"""The number of the `.idx`."""

_TYPES = {"<u2": 8, "<u4": 4}
_HEADER_BYTES = 34


class MegatronDecoder:
    """Shards of a `.bin` and an `.idx`."""

    suffixes: tuple[str, ...] = (".bin", ".idx")
    has_random_access = True
    folder_index: FolderIndex | None = None

    def size(self, number: int, tokens: int, dtype: DType) -> int | None:
        return None if number == _INDEX else RAW.size(number, tokens, dtype)

    def scan(self, dtype: DType, row_length: int = 0) -> MegatronScan:
        return MegatronScan(dtype, row_length)

    def read(self, files: ReadRange, start: int, end: int, dtype: DType) -> TokenArray:
        return RAW.read(files, start, end, dtype)


class MegatronScan:
    """A pass over both files; keeps the `.idx` in memory: 20 bytes an entry."""

    def __init__(self, dtype: DType, row_length: int) -> None:
        self._dtype = dtype
        self._row_length = row_length
        self._flat: FlatScan = RAW.scan(dtype)
        self._index: list[bytes] = []

    @property
    def tokens_seen(self) -> int:
        return self._flat.tokens_seen

    @property
    def tokens(self) -> int | None:
        return self._flat.tokens

    def take(self, number: int, data: bytes) -> TokenArray:
        if number != _INDEX:
            return self._flat.take(number, data)
        self._index.append(data)
        return no_tokens(self._dtype)

    def problems(self, expected: Expected) -> Iterator[Problem]:
        expected_tokens, lengths, *_ = expected
        index = b"".join(self._index)
        head, n = index[:_HEADER_BYTES], int.from_bytes(index[18:26], "little")
        start = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([_TYPES[self._dtype.str]])
        if head[:18] != start or int.from_bytes(head[26:], "little") != n + 1:
            yield Problem(_INDEX, f"the header of an .idx of {n:,} entries of {self._dtype.name}", repr(head))
            return
        if len(index) != _HEADER_BYTES + 20 * n + 8:
            yield Problem(_INDEX, f"{_HEADER_BYTES + 20 * n + 8:,} bytes for {n:,} entries", f"{len(index):,}")
            return
        sizes = np.frombuffer(index, "<i4", n, _HEADER_BYTES)
        pointers = np.frombuffer(index, "<i8", n, _HEADER_BYTES + 4 * n)
        documents = np.frombuffer(index, "<i8", n + 1, _HEADER_BYTES + 12 * n)
        if lengths is not None and not np.array_equal(sizes, lengths):
            length = self._row_length
            words = f"{len(lengths):,} rows of {length:,} tokens" if length else "the lengths of the documents sidecar"
            yield Problem(_INDEX, words, "others")
        elif int(sizes.sum(dtype=np.int64)) != expected_tokens:
            yield Problem(_INDEX, f"lengths of {expected_tokens:,} tokens", f"{int(sizes.sum(dtype=np.int64)):,}")
        ends = np.cumsum(sizes, dtype=np.int64) * self._dtype.itemsize
        if n and (pointers[0] != 0 or not np.array_equal(pointers[1:], ends[:-1])):
            yield Problem(_INDEX, "each entry's offset where the entry before it ends", "others")
        if not np.array_equal(documents, np.arange(n + 1)):
            yield Problem(_INDEX, f"one document an entry: 0 to {n:,}", "others")


MEGATRON = MegatronDecoder()
