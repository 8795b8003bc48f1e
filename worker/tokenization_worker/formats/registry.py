"""Maps the names of formats in manifests to their code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import PARTS, OutputFormat
from tokenization_worker.formats.base import ByteSink, FileKind, FolderIndex, ShardFormat, ShardShape
from tokenization_worker.formats.llmc import LLMC
from tokenization_worker.formats.megatron import MEGATRON
from tokenization_worker.formats.npy import NPY
from tokenization_worker.formats.parts import PARTS_FORMAT
from tokenization_worker.formats.raw import RAW
from tokenization_worker.formats.webdataset import WEBDATASET
from tokenization_worker.sequences.parts import NO_PARTS, PART

FORMATS: dict[str, ShardFormat] = {
    OutputFormat.NPY: NPY,
    OutputFormat.RAW: RAW,
    OutputFormat.LLMC: LLMC,
    OutputFormat.MEGATRON: MEGATRON,
    OutputFormat.WEBDATASET: WEBDATASET,
}


_KINDS: dict[str, FileKind] = {**FORMATS, PARTS: PARTS_FORMAT}


def kind_of(name: str) -> FileKind:
    """The kind of files of this name; raises `ValueError` for one that this version does not have."""
    return _KINDS[name] if name in _KINDS else format_of(name)


def format_of(name: str) -> ShardFormat:
    """The format of this name; raises `ValueError` for one that this version does not have."""
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"there is no format {name!r}: expected one of {', '.join(FORMATS)}") from None


def preferred_format(names: Sequence[str]) -> str:
    """The one to read: the first with random access, or the first."""
    return next((name for name in names if format_of(name).traits.has_random_access), names[0])


def folder_index_of(name: str) -> FolderIndex | None:
    """The index that a folder of this kind of files has."""
    return FORMATS[name].traits.folder_index if name in FORMATS else None


def fingerprints(names: Iterable[str]) -> dict[str, str]:
    """Of those of these formats of which a library decides the bytes."""
    return {str(name): fingerprint(name) for name in names if format_of(name).traits.library is not None}


@cache
def fingerprint(name: str) -> str:
    """SHA-256 over the files of a fixed shard: another one says that this process writes other bytes.

    Where a library decides the bytes, two versions of it are told apart by this. A part of a document begins each row,
    and one more is in its middle.
    """
    kind = format_of(name)
    sinks = [_Digest() for _ in kind.suffixes]
    length = _PROBE_ROW if kind.traits.needs_rows else 0
    tokens = _mixed_tokens() if kind.traits.needs_rows else np.arange(1000, dtype="<u2")
    writer = kind.begin(ShardShape(len(tokens), tokens.dtype, length), sinks)
    step = length or 300
    for start in range(0, len(tokens), step):
        row = start // step
        places = [(7 * row, row, row, 0, 100, 0), (7 * row + 1, row, row, 100, step - 100, 0)]
        writer.write(tokens[start : start + step], np.array(places, dtype=PART) if length else NO_PARTS)
    writer.finish(np.full(len(tokens) // length, length, np.uint32) if length else np.array([400, 599, 1], np.uint32))
    return sha256("".join(sink.digest.hexdigest() for sink in sinks).encode()).hexdigest()


_PROBE_ROW = 2048


def _mixed_tokens() -> NDArray[np.uint16]:
    """Four rows in which ids come again at all distances, as in texts: what compressors choose differently."""
    state = np.uint32(1)
    tokens = np.empty(4 * _PROBE_ROW, dtype="<u2")
    for number in range(len(tokens)):
        state = np.uint32((int(state) * 1_664_525 + 1_013_904_223) % 2**32)
        tokens[number] = int(state) >> 16 >> (int(state) >> 8) % 16
    return tokens


class _Digest(ByteSink):
    def __init__(self) -> None:
        self.digest = sha256()

    def write(self, data: bytes | memoryview, /) -> None:
        self.digest.update(data)
