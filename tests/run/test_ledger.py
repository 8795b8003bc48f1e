"""What is below `_tokenization/ledger/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import Bench, byte_shards, shards_of
from support.runs import files_below
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.output.scratch import remove_scratch
from tokenization_worker.pipelines.tokenize.ledger import read_tokenize_ledger
from tokenization_worker.storage.base import Entry
from tokenization_worker.storage.local.store import LocalStore

pytestmark = pytest.mark.slow


class WatchedStore(LocalStore):
    """Remembers what it has listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: set[str] = set()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for entry in super().list(prefix):
            self.listed.add(entry.path)
            yield entry


def test_segments_of_all_epochs_are_removed_without_a_look_at_the_receipts(tmp_path: Path) -> None:
    store = WatchedStore(tmp_path)
    epochs = {layout.epoch_path(number) for number in (0, 1, 2)}  # voided, at work, its seal
    receipts = {layout.range_receipt_path(epoch, number) for epoch in (0, 1) for number in range(5)}
    segments = {layout.segment_path(epoch, number) for epoch in (0, 1) for number in range(3)}
    for path in epochs | receipts | segments:
        create_bytes(store, path, b"")
    remove_scratch(store)
    assert files_below(tmp_path) == epochs | receipts
    assert store.listed == epochs | segments


FOREIGN = [".nfs00000000a0000001", ".DS_Store", "._00000000", "00000000 (1)", "00000000.json~", "copy/0/00000000.json"]
FOLDERS = ["ledger/0/segments", "ledger/0/ranges", "ledger/0/shards", "ledger/0/shards/train", "ledger/0/quarantine"]


@pytest.mark.parametrize("name", FOREIGN)
def test_names_that_are_not_ours_are_no_part_of_the_ledger(name: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.stop()
    store = LocalStore(bench.output)
    plan = read_plan(store)
    assert plan is not None
    before = read_tokenize_ledger(store, plan, 0)
    for folder in [*FOLDERS, "files"]:
        bench.write(f"out/_tokenization/{folder}/{name}", b"not ours")
    assert read_tokenize_ledger(store, plan, 0) == before

    status = bench.tokjob("status", "out")
    assert (status.code, status.err) == (0, "")
    again = bench.tokjob("run", "job.yaml", "--maxQuarantined", "1")
    assert (again.code, again.err) == (0, "")
    assert shards_of(bench.output) == byte_shards(bench.documents)
