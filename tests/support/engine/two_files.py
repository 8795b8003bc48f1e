"""A format of two files a shard, as Megatron's is: `.tok` has the tokens, `.len` the lengths of the documents.

    .tok    8 bytes magic, u64 number of tokens, the tokens
    .len    8 bytes magic, u32 lengths: each document's tokens in this shard

Registered only in tests. The writer and the reader for `verify` share nothing but these words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.runs import make_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.formats import registry
from tokenization_worker.formats.base import (
    ByteSink,
    FormatTraits,
    LengthArray,
    ShardReader,
    ShardShape,
    StoredFile,
    TokenArray,
)
from tokenization_worker.formats.flat import FlatReader, FlatWriter
from tokenization_worker.verification.formats import registry as decoders
from tokenization_worker.verification.formats.base import (
    DType,
    Expected,
    FolderIndex,
    Problem,
    ReadRange,
    no_tokens,
    whole_tokens,
)

TOKENS, LENGTHS = b"TESTTOK\n", b"TESTLEN\n"


class Formats(StrEnum):
    """What no manifest may ask for."""

    NPY = "Npy"
    TWO_FILES = "TwoFiles"


def header(shape: ShardShape) -> bytes:
    return TOKENS + shape.tokens.to_bytes(8, "little")


class TwoFiles:
    suffixes: tuple[str, ...] = (".tok", ".len")
    traits = FormatTraits()

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> TwoFilesWriter:
        return TwoFilesWriter(shape, sinks)

    def total_bytes(self, shape: ShardShape, shards: int, entries: int) -> int:
        return shards * (16 + 8) + shape.tokens * shape.dtype.itemsize + entries * 4

    def reader(self, shape: ShardShape, files: Sequence[StoredFile]) -> ShardReader:
        return FlatReader(header(shape), shape, files[0])

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape) -> str | None:
        begin = file.store.read_range(file.path, 0, 8)
        return None if begin == (TOKENS, LENGTHS)[number] else "it does not begin with the header of such a file"


class TwoFilesWriter(FlatWriter):
    def __init__(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> None:
        super().__init__(header(shape), sinks[0])
        self._lengths = sinks[1]

    def finish(self, entries: LengthArray) -> None:
        self._lengths.write(LENGTHS)
        self._lengths.write(entries.astype("<u4").data)


class TwoFilesDecoder:
    suffixes: tuple[str, ...] = (".tok", ".len")
    has_random_access = True
    folder_index: FolderIndex | None = None

    def size(self, number: int, tokens: int, dtype: DType) -> int | None:
        return None if number else 16 + tokens * dtype.itemsize

    def scan(self, dtype: DType, row_length: int = 0) -> TwoFilesScan:
        del row_length
        return TwoFilesScan(dtype)

    def read(self, files: ReadRange, start: int, end: int, dtype: DType) -> TokenArray:
        return whole_tokens([files(0, 16 + start * dtype.itemsize, 16 + end * dtype.itemsize)], dtype)


class TwoFilesScan:
    """Holds the files whole: those of tests are small."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._data = [b"", b""]
        self.tokens_seen = 0

    def take(self, number: int, data: bytes) -> TokenArray:
        self._data[number] += data
        if number:
            return no_tokens(self._dtype)
        before, self.tokens_seen = self.tokens_seen, max(0, len(self._data[0]) - 16) // self._dtype.itemsize
        return whole_tokens([self._data[0][16:]], self._dtype)[before:]

    @property
    def tokens(self) -> int | None:
        head = self._data[0][:16]
        return int.from_bytes(head[8:], "little") if head[:8] == b"TESTTOK\n" else None

    def problems(self, expected: Expected) -> Iterator[Problem]:
        expected_tokens, lengths, *_ = expected
        if self.tokens != expected_tokens:
            yield Problem(0, f"{expected_tokens:,} tokens", f"{self.tokens}")
        found = whole_tokens([self._data[1][8:]], np.dtype("<u4"))
        if lengths is not None and not np.array_equal(lengths, found):
            yield Problem(1, "the lengths of the sidecar", "others")


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and its forks, know the format."""
    monkeypatch.setitem(registry.FORMATS, Formats.TWO_FILES, TwoFiles())
    monkeypatch.setitem(decoders.DECODERS, Formats.TWO_FILES, TwoFilesDecoder())


def job_of(source: Path, output: Path, /, *formats: Formats, **fields: Any) -> TokenizationJob:
    """A job with formats that its model refuses."""
    job = make_job(source, output, **fields)
    changed = job.spec.output.model_copy(update={"formats": list(formats)})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"output": changed})})
