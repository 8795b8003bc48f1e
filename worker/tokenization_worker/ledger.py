"""The ledger: all receipts of a plan, the only thing that decides what is done.

Reading it is the whole of "resume": every start lists the receipts and does what is missing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from operator import add
from typing import Any, TypeVar

from tokenization_worker import layout
from tokenization_worker.listed import NUMBER, RECORD, DamagedRecord, list_ours, read_ours
from tokenization_worker.parallel import map_at_once
from tokenization_worker.plan import Plan
from tokenization_worker.poison import read_poison
from tokenization_worker.readers.documents import Poison
from tokenization_worker.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.records import require_plan
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.listing import delete_all


@dataclass(slots=True)
class Ledger:
    """What is done in one epoch.

    `segments`: ranges whose segment is there. `lost_lists`: ranges whose quarantine list is not there, although
    their receipt names one. `verdicts`: of damaged files, file -> (outcome, detail). `poison`: documents that kill
    their worker, file -> they. `damaged`: receipts, and verdicts on files, that are not as they were
    written: they count as absent.
    """

    ranges: dict[int, RangeReceipt] = field(default_factory=dict)
    shards: dict[tuple[str, int], ShardReceipt] = field(default_factory=dict)
    segments: set[int] = field(default_factory=set)
    lost_lists: set[int] = field(default_factory=set)
    verdicts: dict[int, tuple[str, str]] = field(default_factory=dict)
    poison: dict[int, tuple[Poison, ...]] = field(default_factory=dict)
    damaged: list[DamagedRecord] = field(default_factory=list)


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
    ledger = Ledger()
    ranges = [f"{range_id:08d}" for range_id in range(plan.n_ranges)]
    folder, damaged = f"{layout.LEDGER}{epoch}/", ledger.damaged
    for receipt in _read(store, plan, f"{folder}ranges/", RECORD, ranges, RangeReceipt, damaged):
        ledger.ranges[receipt.range_id] = receipt
    lists = set(list_ours(store, layout.quarantine_prefix(epoch), ".*", ranges))  # after the receipts: they come later
    for range_id, receipt in ledger.ranges.items():
        digest = receipt.quarantine_digest
        if digest and lists.isdisjoint(layout.quarantine_paths(epoch, range_id, digest)):
            ledger.lost_lists.add(range_id)
    shards = list(_possible_shards(plan, ledger))
    for shard in _read(store, plan, f"{folder}shards/", f"[^/]+/{RECORD}", shards, ShardReceipt, damaged):
        ledger.shards[shard.split, shard.index] = shard
    for path in list_ours(store, layout.segments_prefix(epoch), NUMBER, ranges):
        ledger.segments.add(int(path.rpartition("/")[2]))
    for file, outcome, detail in read_ours(store, layout.VERDICTS, RECORD, ("",), _verdict, damaged):
        ledger.verdicts[file] = (outcome, detail)
    ledger.poison = read_poison(store)
    return ledger


R = TypeVar("R", RangeReceipt, ShardReceipt)


def _read(
    store: Store,
    plan: Plan,
    folder: str,
    pattern: str,
    names: list[str],
    kind: type[R],
    damaged: list[DamagedRecord],
) -> Iterator[R]:
    """The receipts below `folder`, all of `plan`."""

    def make(path: str, record: dict[str, Any]) -> R:
        require_plan(store.uri, path, record["plan_id"], plan.plan_id)
        return kind.from_dict(record)

    return read_ours(store, folder, pattern, names, make, damaged)


def _verdict(path: str, record: dict[str, Any]) -> tuple[int, str, str]:
    del path
    return record["file"], record["outcome"], record["detail"]


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


def remove_scratch(store: Store) -> None:
    """Delete all segments and what dead writers left; nothing of the dataset or the ledger."""
    n_epochs = sum(1 for _ in store.list(layout.EPOCHS))
    for epoch in range(n_epochs):
        delete_all(store, list(store.list(layout.segments_prefix(epoch))))
    # A probe is of a start that was killed, or was not let, between its creation and its end.
    for _ in map_at_once(store.delete, (layout.PROBE, layout.FAILURE), store.connections):
        pass
    delete_all(store, list(store.list(layout.ALIVE)))  # of runs that were killed
    store.close_scratch()
