"""The merge task: the counts of all ranges become one sorted table, and their held-out documents one file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt, find_receipt, place_bytes
from tokenization_worker.pipelines.train.counts_object import read_counts
from tokenization_worker.pipelines.train.holdout import Holdout, read_held_out
from tokenization_worker.pipelines.train.receipts import MergeReceipt
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.training.counting import PieceTable
from tokenization_worker.training.pieces import Pieces

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merge the counts of `ranges`: each with how many pieces it has, and how many documents are held out of it."""

    output_uri: str
    plan_id: str
    ranges: tuple[tuple[int, int, int], ...]

    @property
    def product(self) -> str:
        return "the merged counts"

    def run(self, worker: WorkerState, on_advance: OnAdvance = ignore_advance) -> MergeReceipt:
        started = time.monotonic()
        store = open_store(self.output_uri)
        found = find_receipt(store, layout.merged_receipt_path(), MergeReceipt, self.plan_id)
        if found is not None:
            return found
        table, holdout = PieceTable(), Holdout()
        for range_id, n_pieces, n_held_out in self.ranges:
            counts_path, held_out_path = layout.training_scratch(range_id)
            for pieces in _reading(store, range_id, counts_path, partial(read_counts, pieces=n_pieces)):
                table.add(pieces)
            if n_held_out:
                holdout.add(_reading(store, range_id, held_out_path, read_held_out))
        pieces = table.take().sort()
        data, lines = pieces.to_bytes(), holdout.lines()
        kept = sum(1 for _ in holdout.kept())
        if kept:
            place_bytes(store, layout.HOLDOUT, lines, allow_replace=lambda: None)
        place_bytes(store, layout.COUNTS, data, allow_replace=lambda: None)
        receipt = MergeReceipt(
            plan_id=self.plan_id,
            digest=pieces.digest(),
            pieces=pieces.total,
            distinct=len(pieces),
            size=len(data),
            held_out=kept,
            node=worker.node,
            pid=os.getpid(),
            seconds=round(time.monotonic() - started, 3),
        )
        return create_receipt(store, layout.merged_receipt_path(), receipt)


def _reading(store: Store, range_id: int, path: str, read: Callable[[bytes], Iterator[T]]) -> Iterator[T]:
    """What `read` finds in a scratch object; raises `ProductLost` where the object is gone or torn."""
    entry = store.stat(path)
    if entry is None:
        raise ProductLost(range_id, f"{path} is gone")
    try:
        yield from read(store.read(path))
    except NotFound as error:
        raise ProductLost(range_id, f"{path} is gone") from error
    except ValueError as error:
        raise ProductLost(range_id, f"{path}: {error}", entry.version) from error


def read_merged(store: Store, receipt: MergeReceipt) -> Pieces:
    """The merged counts; raises `ValueError` where they are not those of the receipt."""
    try:
        pieces = Pieces.from_bytes(store.read(layout.COUNTS))
    except NotFound:
        raise ValueError("it is gone") from None
    if pieces.digest() != receipt.digest:
        raise ValueError("it holds other counts than its receipt says")
    return pieces
