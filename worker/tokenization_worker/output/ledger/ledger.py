"""The ledger: all receipts of a plan, the only thing that decides what is done.

Reading it is the whole of "resume": every start lists the receipts and does what is missing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, islice, repeat
from operator import add
from types import MappingProxyType
from typing import Any, TypeVar

from tokenization_worker.output import layout
from tokenization_worker.output.ledger.crash_verdicts import read_crash_verdicts
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.record import require_plan
from tokenization_worker.output.scan import NUMBER, RECORD, DamagedRecord, list_ours, read_ours
from tokenization_worker.readers.document_batch import CrashVerdict, FileOutcome
from tokenization_worker.storage.base import Store


@dataclass(slots=True)
class Ledger:
    """What is done in one epoch. Its properties are views: what changes it are its methods.

    Receipts and verdicts keep the order in which they were added, so that a count need read only new ones.
    """

    _ranges: dict[int, RangeReceipt] = field(default_factory=dict)
    _shards: dict[tuple[str, int], ShardReceipt] = field(default_factory=dict)
    _segments: set[int] = field(default_factory=set)
    _lost_lists: set[int] = field(default_factory=set)
    _verdicts: dict[int, tuple[str, str]] = field(default_factory=dict)
    _crash_verdicts: dict[int, tuple[CrashVerdict, ...]] = field(default_factory=dict)
    _damaged: list[DamagedRecord] = field(default_factory=list)

    @property
    def ranges(self) -> Mapping[int, RangeReceipt]:
        """Receipts by range."""
        return MappingProxyType(self._ranges)

    @property
    def shards(self) -> Mapping[tuple[str, int], ShardReceipt]:
        """Receipts by split and number within it."""
        return MappingProxyType(self._shards)

    @property
    def segments(self) -> Set[int]:
        """Ranges whose segment is there."""
        return self._segments

    @property
    def lost_lists(self) -> Set[int]:
        """Ranges whose quarantine list is not there, although their receipt names one."""
        return self._lost_lists

    @property
    def verdicts(self) -> Mapping[int, tuple[str, str]]:
        """Of damaged files: file -> (outcome, detail)."""
        return MappingProxyType(self._verdicts)

    @property
    def crash_verdicts(self) -> Mapping[int, tuple[CrashVerdict, ...]]:
        """Documents that kill their worker, by file."""
        return MappingProxyType(self._crash_verdicts)

    @property
    def damaged(self) -> Sequence[DamagedRecord]:
        """Receipts, and verdicts on files, that are not as they were written: they count as absent."""
        return self._damaged

    def ranges_from(self, count: int) -> Iterator[RangeReceipt]:
        """The receipts of ranges that were added after the first `count`, the last one first."""
        return islice(reversed(self._ranges.values()), len(self._ranges) - count)

    def verdicts_from(self, count: int) -> Iterator[int]:
        """The files whose verdicts were added after the first `count`, the last one first."""
        return islice(reversed(self._verdicts), len(self._verdicts) - count)

    def add_range(self, receipt: RangeReceipt) -> None:
        self._ranges[receipt.range_id] = receipt

    def add_shard(self, receipt: ShardReceipt) -> None:
        self._shards[receipt.split, receipt.index] = receipt

    def add_verdict(self, file: int, outcome: str, detail: str) -> None:
        """Take a verdict on a damaged file; the first one stays."""
        self._verdicts.setdefault(file, (outcome, detail))

    def forget_range(self, range_id: int) -> None:
        """Take a range for not done: its receipt does not count."""
        del self._ranges[range_id]
        self._segments.discard(range_id)
        self._lost_lists.discard(range_id)

    def forget_shard(self, split: str, index: int) -> None:
        """Take a shard for not written: its receipt does not count."""
        del self._shards[split, index]

    def set_segments(self, there: Iterable[int]) -> None:
        """Take note of the segments that are there now."""
        self._segments = set(there)

    def set_lost_lists(self, ranges: Iterable[int]) -> None:
        """Take note of the ranges whose quarantine list is not there now."""
        self._lost_lists = set(ranges)


@contextmanager
def _without_collector() -> Iterator[None]:
    """A million objects that stay, and no cycles: looking for garbage among them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()
def read_ledger(store: Store, plan: Plan, epoch: int) -> Ledger:
    """Everything recorded for `plan` in `epoch`."""
    damaged: list[DamagedRecord] = []
    ledger = Ledger(_damaged=damaged)
    ranges = [f"{range_id:08d}" for range_id in range(plan.n_ranges)]
    folder = f"{layout.LEDGER}{epoch}/"
    places = _Places(plan, epoch)
    for receipt in _read(store, plan, f"{folder}ranges/", RECORD, ranges, RangeReceipt, places.check_range, damaged):
        ledger.add_range(receipt)
    lists = set(list_ours(store, layout.quarantine_prefix(epoch), ".*", ranges))  # after the receipts: they come later
    listed = ((range_id, receipt.quarantine_digest) for range_id, receipt in ledger.ranges.items())
    ledger.set_lost_lists(
        range_id
        for range_id, digest in listed
        if digest and lists.isdisjoint(layout.quarantine_paths(epoch, range_id, digest))
    )
    shards = list(_possible_shards(plan, ledger))
    pattern = f"[^/]+/{RECORD}"
    for shard in _read(store, plan, f"{folder}shards/", pattern, shards, ShardReceipt, places.check_shard, damaged):
        ledger.add_shard(shard)
    segments = list_ours(store, layout.segments_prefix(epoch), NUMBER, ranges)
    ledger.set_segments(int(path.rpartition("/")[2]) for path in segments)
    for file, outcome, detail in read_ours(store, layout.VERDICTS, RECORD, ("",), _verdict, damaged):
        ledger.add_verdict(file, outcome, detail)
    ledger._crash_verdicts = read_crash_verdicts(store)
    return ledger


R = TypeVar("R", RangeReceipt, ShardReceipt)


def _read(
    store: Store,
    plan: Plan,
    folder: str,
    pattern: str,
    names: list[str],
    kind: type[R],
    check: Callable[[str, R], None],
    damaged: list[DamagedRecord],
) -> Iterator[R]:
    """The receipts below `folder`, all of `plan`."""

    def make(path: str, record: dict[str, Any]) -> R:
        require_plan(store.uri, path, record["plan_id"], plan.plan_id)
        receipt = kind.from_dict(record)
        check(path, receipt)
        return receipt

    return read_ours(store, folder, pattern, names, make, damaged)


class _Places:
    """What a receipt of a plan and an epoch must say at its path; the checks raise `ValueError`."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._epoch = epoch
        self._borders = plan.cut.range_slice.tolist()
        self._files = plan.cut.slice_file
        self._naming = Naming.planned(plan.data)
        splits = plan.data["output"]["splits"]
        by_hash = len(splits) > 1 and splits[0]["share"] is not None
        self._n_streams = len(splits) if by_hash else 1
        # The first shard of each split, counted over all of them; None: they are not counted.
        firsts = accumulate((split["shards"] or 0 for split in splits[:-1]), initial=0)
        self._firsts = {split["name"]: None if by_hash else first for split, first in zip(splits, firsts, strict=True)}

    def check_range(self, path: str, receipt: RangeReceipt) -> None:
        number = receipt.range_id
        if path != layout.range_receipt_path(receipt.epoch, number) or receipt.epoch != self._epoch:
            raise ValueError(f"it is the receipt of range {number} in epoch {receipt.epoch}")
        if number + 1 >= len(self._borders):
            raise ValueError(f"the plan has {len(self._borders) - 1} ranges")
        files = self._files[self._borders[number] : self._borders[number + 1]].tolist()
        if [part.file for part in receipt.slices] != files:
            raise ValueError("its slices are not those of the plan")
        if any(len(part.tokens) != self._n_streams for part in receipt.slices):
            raise ValueError(f"its slices have not {self._n_streams} streams, as the plan has")

    def check_shard(self, path: str, receipt: ShardReceipt) -> None:
        split, index = receipt.split, receipt.index
        if path != layout.shard_receipt_path(receipt.epoch, split, index) or receipt.epoch != self._epoch:
            raise ValueError(f"it is the receipt of shard {index} of split {split!r} in epoch {receipt.epoch}")
        if split not in self._firsts:
            raise ValueError(f"the plan has no split {split!r}")
        first = self._firsts[split]
        shard = -1 if first is None else first + index
        expected = [file.path for file in self._naming.files(split=split, index=index, shard=shard)]
        paths = [file.path for file in receipt.files]
        if (receipt.shard, paths) != (shard, expected):
            found = f"it is of shard {receipt.shard} at {', '.join(map(repr, paths)):.200}"
            raise ValueError(f"{found}, expected shard {shard} at {', '.join(expected)}")


def _verdict(path: str, record: dict[str, Any]) -> tuple[int, str, str]:
    file, outcome, detail = record["file"], record["outcome"], record["detail"]
    if type(file) is not int or path != layout.verdict_path(file):
        raise ValueError(f"it is the verdict on file {file!r:.60}")
    if outcome not in tuple(FileOutcome) or type(detail) is not str:
        raise ValueError(f"{outcome!r:.60} is no outcome of a file, or its detail no text")
    return file, outcome, detail


def _possible_shards(plan: Plan, ledger: Ledger) -> Iterator[str]:
    """Split and number of every shard that the ledger's ranges may have filled: a listing needs to know names."""
    tokens: list[int] = []
    for receipt in ledger.ranges.values():
        for result in receipt.slices:
            tokens = list(map(add, tokens or repeat(0), result.tokens))
    output = plan.data["output"]
    counts = [total // output["shards"]["tokens"] + 1 for total in tokens]  # of each stream
    for number, split in enumerate(output["splits"] if counts else ()):
        count = counts[number] if len(counts) > 1 else min(counts[0], split["shards"] or counts[0])
        yield from (f"{split['name']}/{index:08d}" for index in range(count))
