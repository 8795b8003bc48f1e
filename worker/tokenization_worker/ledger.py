"""The ledger: all receipts of a plan, the only thing that decides what is done.

Reading it is the whole of "resume": every start lists the receipts and does what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tokenization_worker import layout
from tokenization_worker.errors import ChangedError
from tokenization_worker.plan import Plan
from tokenization_worker.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.records import load_record, parsing
from tokenization_worker.storage.base import Store

_NUMBER = r"[0-9]{8,}"
_RECORD = rf"{_NUMBER}\.json"


@dataclass(slots=True)
class Ledger:
    """What is done in one epoch.

    `segments`: ranges whose segment is there. `lost_lists`: ranges whose quarantine list is not there, although
    their receipt names one. `verdicts`: of damaged files, file -> (outcome, detail).
    """

    ranges: dict[int, RangeReceipt] = field(default_factory=dict)
    shards: dict[tuple[str, int], ShardReceipt] = field(default_factory=dict)
    segments: set[int] = field(default_factory=set)
    lost_lists: set[int] = field(default_factory=set)
    verdicts: dict[int, tuple[str, str]] = field(default_factory=dict)


def read_ledger(store: Store, plan: Plan, epoch: int) -> Ledger:
    """Everything recorded for `plan` in `epoch`."""
    ledger = Ledger()
    for path in _list_ours(store, f"{layout.LEDGER}{epoch}/ranges/", _RECORD):
        with parsing(store.uri, path):
            receipt = RangeReceipt.from_dict(_load(store, path, plan))
        ledger.ranges[receipt.range_id] = receipt
    lists = {entry.path for entry in store.list(layout.quarantine_prefix(epoch))}  # after the receipts: they come later
    for range_id, receipt in ledger.ranges.items():
        digest = receipt.quarantine_digest
        if digest and layout.quarantine_path(epoch, range_id, digest) not in lists:
            ledger.lost_lists.add(range_id)
    for path in _list_ours(store, f"{layout.LEDGER}{epoch}/shards/", f"[^/]+/{_RECORD}"):
        with parsing(store.uri, path):
            shard = ShardReceipt.from_dict(_load(store, path, plan))
        ledger.shards[shard.split, shard.index] = shard
    for path in _list_ours(store, layout.segments_prefix(epoch), _NUMBER):
        ledger.segments.add(int(path.rpartition("/")[2]))
    for path in _list_ours(store, layout.VERDICTS, _RECORD):
        with parsing(store.uri, path):
            verdict = load_record(store.read(path))
            ledger.verdicts[verdict["file"]] = (verdict["outcome"], verdict["detail"])
    return ledger


def _list_ours(store: Store, prefix: str, pattern: str) -> Iterator[str]:
    """Paths below `prefix` whose rest is one of our names: not what a file manager or NFS leaves beside them."""
    ours = re.compile(re.escape(prefix) + pattern)
    return (entry.path for entry in store.list(prefix) if ours.fullmatch(entry.path))


def _load(store: Store, path: str, plan: Plan) -> dict[str, object]:
    record: dict[str, object] = load_record(store.read(path))
    if record["plan_id"] != plan.plan_id:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{path} belongs to plan {record['plan_id']}, expected {plan.plan_id}",
            next_step="the ledger was mixed up by hand: write to another output.uri",
        )
    return record


def remove_scratch(store: Store) -> None:
    """Delete all segments and what dead writers left; nothing of the dataset or the ledger."""
    n_epochs = sum(1 for _ in store.list(layout.EPOCHS))
    for epoch in range(n_epochs):
        for entry in list(store.list(layout.segments_prefix(epoch))):
            store.delete(entry.path)
    store.close_scratch()
