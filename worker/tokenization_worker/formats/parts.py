"""The file of a shard's parts: one numpy `.npy`, version 1.0, of `sequences.parts.PART` in the order of rows.

It is written beside every format of a dataset with rows, below `parts/`: np.load reads it. Format: NEP 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np

from tokenization_worker.formats.base import (
    ByteSink,
    LengthArray,
    ShardShape,
    ShardWriter,
    StoredFile,
    TokenArray,
)
from tokenization_worker.sequences.parts import PART, PartArray


class PartsFormat:
    """The parts of a shard's rows."""

    suffixes: tuple[str, ...] = (".npy",)

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> ShardWriter:
        return PartsWriter(sinks[0])

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape) -> str | None:
        del number  # there is one
        count, rest = divmod(file.size - len(header_of(0)), PART.itemsize)
        if rest or not 0 < count <= shape.tokens:
            return f"no file of parts has {file.size:,} bytes"
        header = header_of(count)
        is_ours = file.store.read_range(file.path, 0, len(header)) == header
        return None if is_ours else "it does not begin with the header of a file of parts"


class PartsWriter:
    """Keeps parts until their number is known: 28 bytes each."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self._parts: list[PartArray] = []

    def write(self, tokens: TokenArray, parts: PartArray) -> None:
        self._parts.append(parts)

    def finish(self, entries: LengthArray) -> None:
        self._sink.write(header_of(sum(map(len, self._parts))))
        for parts in self._parts:
            self._sink.write(parts.tobytes())


def header_of(count: int) -> bytes:
    """The header that numpy writes: of one size for every count, since numpy keeps room for longer ones."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.lib.format.dtype_to_descr(PART), "fortran_order": False, "shape": (count,)}
    )
    return buffer.getvalue()


PARTS_FORMAT = PartsFormat()
