"""The context of every task of a run: frozen, small, and the same on every machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from tokenization_worker.api.data import DataSpec, DelimiterPosition, DType
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.planning.splits import Streams


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run's fixed facts. `dtype` is resolved, `engine` is the engine of `epoch`, `fingerprint` the
    tokenizer's; `versions`: of the libraries that gave the plan's samples ("" where it has none); `pad_id`: fills rows,
    None where there are none; `writers`: of each format whose bytes a library decides, the fingerprint of the plan's;
    `n_cells`: of each scattered object, 0 where documents stand in the order of the source.

    Every task carries it: it is packed once in the driver, and unpacked once in a worker.
    """

    data: DataSpec
    plan_id: str
    epoch: int
    engine: str
    dtype: DType
    sample_one_in: int
    fingerprint: str
    versions: str = ""
    pad_id: int | None = None
    writers: tuple[tuple[str, str], ...] = ()
    n_cells: int = 0

    @property
    def streams(self) -> Streams:
        return Streams(self.data.output.splits)

    @property
    def numpy_dtype(self) -> np.dtype[np.unsignedinteger]:
        return NUMPY_DTYPES[self.dtype]

    @property
    def unit_length(self) -> int:
        """Tokens of a row, where rows are shuffled; else 0."""
        rows = self.data.output.shuffled_rows
        return 0 if rows is None else rows.length

    @property
    def is_delimited(self) -> bool:
        """Whether every document has a token of its own, also an empty one."""
        return self.data.tokenizer.delimiter_position is not DelimiterPosition.NONE

    def __reduce__(self) -> tuple[Callable[[bytes], RunContext], tuple[bytes]]:
        return _unpack, (_pack(self),)


@lru_cache(maxsize=1)
def _pack(context: RunContext) -> bytes:
    return pickle.dumps([getattr(context, field.name) for field in fields(context)])


@lru_cache(maxsize=1)
def _unpack(packed: bytes) -> RunContext:
    return RunContext(*pickle.loads(packed))
