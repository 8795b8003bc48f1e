"""What is below `_tokenization/ledger/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from runs import files_below

from tokenization_worker import layout
from tokenization_worker.commit import create_bytes
from tokenization_worker.ledger import remove_scratch
from tokenization_worker.storage.base import Entry
from tokenization_worker.storage.local import LocalStore


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
