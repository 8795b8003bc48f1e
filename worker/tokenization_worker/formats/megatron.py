"""Megatron's indexed dataset: `.bin` has the tokens, `.idx` where each document begins. All numbers little-endian.

    .idx    magic "MMIDIDX\\0\\0", u64 version 1, u8 type of a token, u64 n, u64 n + 1
            lengths    i32[n]      tokens of each entry
            pointers   i64[n]      byte in `.bin` at which each entry begins
            documents  i64[n + 1]  the entry at which each document begins, then n

An entry is one document's tokens in this shard, delimiters included. A document that goes on in the next shard is an
entry in both. In a shard of rows an entry is a row. Megatron has no u32: such tokens are int32, with the same bytes.
Source: Megatron-LM `megatron/core/datasets/indexed_dataset.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenization_worker.formats.base import (
    ByteSink,
    FormatTraits,
    LengthArray,
    ShardReader,
    ShardShape,
    ShardWriter,
    StoredFile,
)
from tokenization_worker.formats.flat import FlatWriter
from tokenization_worker.formats.raw import RAW

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_TYPE_CODES = {2: 8, 4: 4}
"""Of uint16 and int32, by the bytes of a token."""

_EMPTY_INDEX_BYTES = 42
_ENTRY_BYTES = 20
"""Of an `.idx`: without an entry, and for each."""


class MegatronFormat:
    """Shards of a `.bin` and an `.idx`."""

    suffixes: tuple[str, ...] = (".bin", ".idx")
    traits = FormatTraits()

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> ShardWriter:
        return MegatronWriter(shape, sinks)

    def total_bytes(self, shape: ShardShape, shards: int, entries: int) -> int:
        index_bytes = shards * _EMPTY_INDEX_BYTES + entries * _ENTRY_BYTES
        return RAW.total_bytes(shape, shards, entries) + index_bytes

    def reader(self, shape: ShardShape, files: Sequence[StoredFile]) -> ShardReader:
        return RAW.reader(shape, files)

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape) -> str | None:
        if number == 0:
            return RAW.why_foreign(number, file, shape)
        entries, rest = divmod(file.size - _EMPTY_INDEX_BYTES, _ENTRY_BYTES)
        if rest or not 0 < entries <= shape.tokens:
            return f"no .idx of a shard of this run has {file.size:,} bytes"
        head = _head(shape, entries)
        is_ours = file.store.read_range(file.path, 0, len(head)) == head
        return None if is_ours else "it does not begin as the .idx of a shard of this run does"


class MegatronWriter(FlatWriter):
    """Writes `.bin` while tokens come, and `.idx` at the end."""

    def __init__(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> None:
        super().__init__(b"", sinks[0])
        self._shape = shape
        self._index = sinks[1]

    def finish(self, entries: LengthArray) -> None:
        lengths = entries.astype("<i4")
        pointers = np.zeros(len(lengths), dtype="<i8")
        np.cumsum(lengths[:-1], dtype="<i8", out=pointers[1:])
        pointers *= self._shape.dtype.itemsize
        self._index.write(_head(self._shape, len(lengths)))
        for array in (lengths, pointers, np.arange(len(lengths) + 1, dtype="<i8")):
            self._index.write(array.data)


def _head(shape: ShardShape, entries: int) -> bytes:
    """The bytes of an `.idx` before its arrays."""
    kind = bytes([_TYPE_CODES[shape.dtype.itemsize]])
    return _MAGIC + _VERSION.to_bytes(8, "little") + kind + np.array([entries, entries + 1], dtype="<u8").tobytes()


MEGATRON = MegatronFormat()
