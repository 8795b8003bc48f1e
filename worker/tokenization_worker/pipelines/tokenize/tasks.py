"""What every task of a run is told: frozen, small, and the same on every machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from tokenization_worker.api.data import DataSpec, DelimiterPosition, DType
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlan
from tokenization_worker.planning.splits import Streams
from tokenization_worker.readers.document_batch import FileSlice, Poison


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run's fixed facts. `dtype` is resolved, `engine` is the engine of `epoch`, `fingerprint` the
    tokenizer's; `versions`: of the libraries that gave the plan's samples ("" where it has none).

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

    @property
    def streams(self) -> Streams:
        return Streams(self.data.output.splits)

    @property
    def numpy_dtype(self) -> np.dtype[np.unsignedinteger]:
        return NUMPY_DTYPES[self.dtype]

    @property
    def delimiter_position(self) -> DelimiterPosition:
        return self.data.tokenizer.delimiter_position

    def __reduce__(self) -> tuple[Callable[[bytes], RunContext], tuple[bytes]]:
        return _unpack, (_pack(self),)


@lru_cache(maxsize=1)
def _pack(context: RunContext) -> bytes:
    return pickle.dumps([getattr(context, field.name) for field in fields(context)])


@lru_cache(maxsize=1)
def _unpack(packed: bytes) -> RunContext:
    return RunContext(*pickle.loads(packed))


@dataclass(frozen=True, slots=True)
class TokenizeTask:
    """Tokenize one range. Files in `dropped` (file, outcome, detail) have a verdict already and are not
    read; documents in `poison`, each with its file, have one and are left out. `again`: its receipt is there, and
    something that belongs to it is lost. `spent`: ranges whose segment no shard needs any more; they are deleted first.

    `isolated`: the range has lost a worker, so that its documents are encoded in a process of their own. `room`: with
    more unusable documents than that the range ends early (`TooManyUnusable`); None: it goes on.
    """

    context: RunContext
    range_id: int
    slices: tuple[FileSlice, ...]
    stored_bytes: int
    dropped: tuple[tuple[int, str, str], ...] = ()
    poison: tuple[tuple[int, Poison], ...] = ()
    again: bool = False
    isolated: bool = False
    spent: tuple[int, ...] = ()
    room: int | None = None


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Build one shard.

    `segment_digests` and `slice_files` have one entry per piece of the shard: the digest of the segment in
    its range's receipt, and the file of each of the range's slices. `repair`: the shard that is there is
    damaged and may be replaced. `expected`: what the shard must be, where a complete dataset says so. `spent`: as for
    `TokenizeTask`.
    """

    context: RunContext
    shard: ShardPlan
    segment_digests: tuple[str, ...]
    slice_files: tuple[tuple[int, ...], ...]
    repair: bool = False
    spent: tuple[int, ...] = ()
    expected: ShardSums | None = None
