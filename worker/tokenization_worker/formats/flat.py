"""Files with a header and then all tokens: the common code of several formats.

The header must follow from the number of tokens and their type alone. Then a reader compares bytes and parses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tokenization_worker.formats.base import (
    ByteSink,
    FormatTraits,
    LengthArray,
    ShardReader,
    ShardShape,
    ShardUnreadable,
    ShardWriter,
    StoredFile,
    TokenArray,
)
from tokenization_worker.sequences.parts import PartArray
from tokenization_worker.storage.base import NotFound

_SHOWN_BYTES = 128
"""Of a header in an error: the whole one of `.npy`; most of llm.c's 1024 are zeros."""


class FlatFormat:
    """A format of one flat file. `header(shape)` is its header, of as many bytes for every shape."""

    traits = FormatTraits()

    def __init__(self, suffix: str, header: Callable[[ShardShape], bytes]) -> None:
        self.suffixes: tuple[str, ...] = (suffix,)
        self._header = header

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> ShardWriter:
        return FlatWriter(self._header(shape), sinks[0])

    def total_bytes(self, shape: ShardShape, shards: int, entries: int) -> int:
        del entries
        return shards * len(self._header(replace(shape, tokens=0))) + shape.tokens * shape.dtype.itemsize

    def reader(self, shape: ShardShape, files: Sequence[StoredFile]) -> ShardReader:
        return FlatReader(self._header(shape), shape, files[0])

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape) -> str | None:
        del number  # there is one
        header = self._header(shape)
        if file.size != len(header) + shape.tokens * shape.dtype.itemsize:
            return f"no unfinished shard of this run has {file.size:,} bytes"
        is_ours = _read_header(file, len(header)) == header
        return None if is_ours else "it does not begin with the header of a shard of this run"


def _read_header(file: StoredFile, size: int) -> bytes:
    """The first `size` bytes; raises `NotFound`."""
    return file.store.read_range(file.path, 0, size) if size else b""


class FlatWriter:
    """Writes the header with the first tokens."""

    def __init__(self, header: bytes, sink: ByteSink) -> None:
        self._sink = sink
        if header:
            sink.write(header)

    def write(self, tokens: TokenArray, parts: PartArray) -> None:
        del parts
        self._sink.write(tokens.data)

    def finish(self, entries: LengthArray) -> None:
        """Nothing of a flat file depends on documents or rows."""


class FlatReader:
    """Reads a flat file."""

    def __init__(self, header: bytes, shape: ShardShape, file: StoredFile) -> None:
        self._header = header
        self._shape = shape
        self._file = file

    def check(self) -> None:
        file, shape = self._file, self._shape
        try:
            header = _read_header(file, len(self._header))
        except NotFound as error:
            raise ShardUnreadable(file, "is missing") from error
        if header != self._header:
            expected = f"that of {shape.tokens:,} tokens of {shape.dtype}"
            raise ShardUnreadable(file, f"has another header than {expected}: {header[:_SHOWN_BYTES]!r}")
        entry = file.store.stat(file.path)
        if entry is None:
            raise ShardUnreadable(file, "is missing")
        wanted = len(self._header) + shape.tokens * shape.dtype.itemsize
        if not entry.size == file.size == wanted:
            raise ShardUnreadable(file, f"has {entry.size:,} bytes, expected {wanted:,}")

    def open(self) -> TokenArray:
        self.check()
        path = self._file.store.local_path(self._file.path)
        if path is None:
            return self._read_whole()
        try:
            return np.memmap(path, self._shape.dtype, "r", len(self._header), (self._shape.tokens,))
        except FileNotFoundError as error:
            raise ShardUnreadable(self._file, "is missing") from error
        except ValueError as error:  # it was cut since it was checked
            raise ShardUnreadable(self._file, str(error)) from error

    def _read_whole(self) -> TokenArray:
        """The tokens by a read of the whole object, of which the store compares the checksum."""
        try:
            data = self._file.store.read(self._file.path)
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        if len(data) != self._file.size:
            raise ShardUnreadable(self._file, f"has {len(data):,} bytes, expected {self._file.size:,}")
        return np.frombuffer(data, dtype=self._shape.dtype, offset=len(self._header))

    def read(self, start: int, end: int) -> TokenArray:
        size = self._shape.dtype.itemsize
        first = len(self._header) + start * size
        try:
            data = self._file.store.read_range(self._file.path, first, first + (end - start) * size)
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        if len(data) != (end - start) * size:
            raise ShardUnreadable(self._file, f"ends at byte {first + len(data):,}")
        return np.frombuffer(data, dtype=self._shape.dtype)
