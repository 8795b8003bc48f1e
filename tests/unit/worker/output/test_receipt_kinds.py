"""The ledger reads whatever kinds of receipts it is given: a pipeline adds one without a change in `output`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct, convert, to_builtins

from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes, create_record
from tokenization_worker.output.ledger.ledger import Ledger, read_ledger
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.storage.local.store import LocalStore

NONE = np.zeros(0, np.int64)
PLAN = Plan("plan", "data", "run", {}, (), (), Cut(NONE, NONE, NONE, NONE, NONE))
PARTITIONS = 4


class Counts(Struct, frozen=True):
    """How often a partition holds each of its pairs of tokens."""

    plan_id: str
    partition: int
    pairs: dict[str, int]


class CountsKind:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.found_before: list[Counts] = []

    def pattern(self, plan: Plan) -> str:
        return r"[0-9]{4}\.json"

    def name_starts(self, plan: Plan, found: Ledger) -> Iterable[str]:
        if self is MERGED:
            self.found_before = list(found.receipts(COUNTED).values())
        return [f"{partition:04d}" for partition in range(PARTITIONS)]

    def decode(self, record: dict[str, Any]) -> Counts:
        return convert(record, Counts)

    def key_of(self, receipt: Counts) -> int:
        return receipt.partition

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, Counts], None]:
        def check(path: str, receipt: Counts) -> None:
            if path != path_of(self, epoch, receipt.partition):
                raise ValueError(f"it is the receipt of partition {receipt.partition}")

        return check


COUNTED = CountsKind("counted/")
MERGED = CountsKind("merged/")


def path_of(kind: CountsKind, epoch: int, partition: int) -> str:
    return f"{layout.epoch_ledger(epoch)}{kind.folder}{partition:04d}.json"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def write(store: LocalStore, kind: CountsKind, partition: int, *, at: int | None = None, plan: str = "plan") -> Counts:
    receipt = Counts(plan, partition, {"a b": partition})
    create_record(store, path_of(kind, 0, partition if at is None else at), to_builtins(receipt))
    return receipt


def test_each_kind_reads_only_its_own_folder_of_the_epoch(store: LocalStore) -> None:
    counted = {number: write(store, COUNTED, number) for number in range(3)}
    merged = {3: write(store, MERGED, 3)}
    create_record(store, path_of(COUNTED, 1, 3), to_builtins(Counts("plan", 3, {})))
    create_bytes(store, f"{layout.epoch_ledger(0)}counted/.nfs1", b"not ours")
    ledger = read_ledger(store, PLAN, 0, [COUNTED, MERGED])
    assert ledger.receipts(COUNTED) == counted
    assert ledger.receipts(MERGED) == merged
    assert sorted(MERGED.found_before, key=COUNTED.key_of) == list(counted.values()), "kinds are read in their order"


def test_a_ledger_has_only_the_kinds_it_was_made_for(store: LocalStore) -> None:
    with pytest.raises(KeyError):
        read_ledger(store, PLAN, 0, [COUNTED]).receipts(MERGED)


def test_a_receipt_that_its_kind_refuses_is_an_error(store: LocalStore) -> None:
    write(store, COUNTED, 1, at=2)
    with pytest.raises(
        DataError, match=r"RecordCorrupt: .*counted/0002\.json .*: it is the receipt of partition 1"
    ) as caught:
        read_ledger(store, PLAN, 0, [COUNTED])
    assert caught.value.next_step.endswith(
        "delete this file and start the same command again: it does the task of this receipt again"
    ), "it is none of a range or a shard"


def test_a_receipt_of_another_plan_is_an_error(store: LocalStore) -> None:
    write(store, COUNTED, 1, plan="other")
    with pytest.raises(ChangedError, match="belongs to plan other"):
        read_ledger(store, PLAN, 0, [COUNTED])


def test_a_receipt_that_is_not_as_it_was_written_counts_as_absent(store: LocalStore) -> None:
    write(store, COUNTED, 0)
    torn = path_of(COUNTED, 0, 1)
    create_bytes(store, torn, b"torn")
    ledger = read_ledger(store, PLAN, 0, [COUNTED, MERGED])
    assert list(ledger.receipts(COUNTED)) == [0]
    assert [record.path for record in ledger.corrupt] == [torn]


def test_receipts_are_counted_on_from_where_a_count_had_ended(store: LocalStore) -> None:
    ledger = Ledger.of([COUNTED])
    for number in (2, 0):
        ledger.add(COUNTED, Counts("plan", number, {}))
    seen = len(ledger.receipts(COUNTED))
    ledger.add(COUNTED, Counts("plan", 1, {}))
    assert [receipt.partition for receipt in ledger.receipts_from(COUNTED, seen)] == [1]
    ledger.forget(COUNTED, 2)
    assert list(ledger.receipts(COUNTED)) == [0, 1]
