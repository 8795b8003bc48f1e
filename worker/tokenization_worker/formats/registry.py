"""Maps the names of formats in manifests to their code."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from tokenization_worker.api.data import OutputFormat
from tokenization_worker.formats.base import ByteSink, ShardFormat, ShardShape
from tokenization_worker.formats.llmc import LLMC
from tokenization_worker.formats.megatron import MEGATRON
from tokenization_worker.formats.npy import NPY
from tokenization_worker.formats.raw import RAW
from tokenization_worker.formats.sidecar import ShardDocuments

FORMATS: dict[str, ShardFormat] = {
    OutputFormat.NPY: NPY,
    OutputFormat.RAW: RAW,
    OutputFormat.LLMC: LLMC,
    OutputFormat.MEGATRON: MEGATRON,
}


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
        writer.write(tokens[start : start + 300])
    writer.finish(ShardDocuments(np.array([400, 599, 1], dtype=np.uint32), 3, 0, 0, 0, continues=False))
    return sha256("".join(sink.digest.hexdigest() for sink in sinks).encode()).hexdigest()


class _Digest(ByteSink):
    def __init__(self) -> None:
        self.digest = sha256()

    def write(self, data: bytes | memoryview, /) -> None:
        self.digest.update(data)
