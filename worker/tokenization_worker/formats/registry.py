"""Maps the names of formats in manifests to their code."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from tokenization_worker.api.data import PARTS, OutputFormat
from tokenization_worker.formats.base import ByteSink, FileKind, ShardFormat, ShardShape
from tokenization_worker.formats.llmc import LLMC
from tokenization_worker.formats.megatron import MEGATRON
from tokenization_worker.formats.npy import NPY
from tokenization_worker.formats.parts import PARTS_FORMAT
from tokenization_worker.formats.raw import RAW
from tokenization_worker.sequences.parts import NO_PARTS

FORMATS: dict[str, ShardFormat] = {
    OutputFormat.NPY: NPY,
    OutputFormat.RAW: RAW,
    OutputFormat.LLMC: LLMC,
    OutputFormat.MEGATRON: MEGATRON,
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


def fingerprint(name: str) -> str:
    """SHA-256 over the files of a fixed shard: another one says that this process writes other bytes.

    Where a library writes the bytes, it is what two versions of that library can be told apart by.
    """
    sinks = [_Digest() for _ in format_of(name).suffixes]
    tokens = np.arange(1000, dtype="<u2")
    writer = format_of(name).begin(ShardShape(len(tokens), tokens.dtype), sinks)
    for start in range(0, len(tokens), 300):
        writer.write(tokens[start : start + 300], NO_PARTS)
    writer.finish(np.array([400, 599, 1], dtype=np.uint32))
    return sha256("".join(sink.digest.hexdigest() for sink in sinks).encode()).hexdigest()


class _Digest(ByteSink):
    def __init__(self) -> None:
        self.digest = sha256()

    def write(self, data: bytes | memoryview, /) -> None:
        self.digest.update(data)
