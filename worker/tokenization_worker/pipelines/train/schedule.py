"""Decides what a training does next: count every range, then merge the counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from tokenization_worker.engine.task import ProductLost, Task, Worker, WorkerLost
from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import Receipt
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.range_queue import RangeQueue
from tokenization_worker.pipelines.train.count_task import CountContext, CountTask
from tokenization_worker.pipelines.train.merge_task import MergeTask
from tokenization_worker.pipelines.train.receipts import COUNTED, MERGED, MERGED_KEY, CountReceipt, MergeReceipt
from tokenization_worker.storage.reserved import OWN

_MAX_LOSSES = 3
"""Counts of a range that are lost so often before they are merged are not lost by chance."""


class TrainSchedule:
    """`there`: ranges whose counts exist. `hash_ends`: of each group, below what the hash of a document is that the
    group's share takes."""

    def __init__(
        self, plan: Plan, context: CountContext, ledger: Ledger, there: Set[int], hash_ends: dict[str, int]
    ) -> None:
        self._plan = plan
        self._context = context
        self._ledger = ledger
        self._hash_ends = hash_ends
        is_merged = MERGED_KEY in ledger.receipts(MERGED)
        counted = ledger.receipts(COUNTED)
        self._queue = RangeQueue(plan, {r for r in counted if is_merged or r in there})
        self._running: set[int] = set()
        self._is_merging = False
        self._losses = Counter[int]()
        self._releasable = sorted(there) if is_merged else []

    @property
    def is_finished(self) -> bool:
        return MERGED_KEY in self._ledger.receipts(MERGED) and not self._queue and not self._running

    @property
    def is_counted(self) -> bool:
        """Whether every range is counted, and the counts are there or merged."""
        return not self._queue and not self._running

    def dropped_files(self) -> dict[int, tuple[str, str]]:
        """Corrupt files with outcome and detail, the first one of the source first."""
        receipts = self._ledger.receipts(COUNTED).values()
        found = {each.file: (each.outcome, each.detail) for receipt in receipts for each in receipt.dropped}
        return dict(sorted(found.items()))

    def merged_ranges(self) -> list[CountReceipt]:
        """The receipts of the ranges that count: a part of a file that is corrupt elsewhere does not."""
        dropped = self.dropped_files().keys()
        return [
            receipt
            for range_id, receipt in sorted(self._ledger.receipts(COUNTED).items())
            if not self._is_part_of(range_id, dropped)
        ]

    def _is_part_of(self, range_id: int, dropped: Set[int]) -> bool:
        """Whether a range is a part of one of these files: such a range has no other slice."""
        if not dropped:
            return False
        slices = self._plan.slices(range_id)
        is_part = len(slices) == 1 and (slices[0].start > 0 or slices[0].end >= 0)
        return is_part and slices[0].file in dropped

    def next_task(self, *, worker: Worker | None, busy: int, slots: int) -> Task | None:
        range_id = self._queue.take(worker, busy=busy, slots=slots)
        if range_id is not None:
            self._running.add(range_id)
            return self._count_task(range_id)
        if self._queue or self._running or self._is_merging or self.is_finished:
            return None
        self._is_merging = True
        ranges = tuple((each.range_id, each.pieces, each.held_out) for each in self.merged_ranges())
        return MergeTask(self._context.output_uri, self._context.plan_id, ranges)

    def done(self, task: Task, receipt: Receipt, worker: Worker | None) -> None:
        match receipt:
            case CountReceipt():
                self._running.discard(receipt.range_id)
                self._queue.ended(receipt.range_id, worker)
                self._ledger.add(COUNTED, receipt)
            case MergeReceipt():
                self._ledger.add(MERGED, receipt)
                self._releasable = list(range(self._plan.n_ranges))

    def product_lost(self, task: Task, loss: ProductLost) -> bool:
        assert isinstance(loss.product, int)
        self._is_merging = False
        self._losses[loss.product] += 1
        if self._losses[loss.product] >= _MAX_LOSSES:
            raise TemporaryError(
                "CountsLost",
                f"the counts of range {loss.product} were lost {_MAX_LOSSES} times: {loss.detail}",
                next_step=f"check the disk, and check whether another program deletes files below {OWN}",
            )
        self._queue.put_back(loss.product)
        return True

    def worker_lost(self, task: Task, loss: WorkerLost, times: int, worker: Worker | None) -> None:
        self._queue.gone(worker)
        if isinstance(task, CountTask):
            self._running.discard(task.range_id)
            self._queue.ended(task.range_id, None)
            self._queue.put_back(task.range_id)
        else:
            self._is_merging = False

    def take_releasable(self) -> Iterable[int]:
        released, self._releasable = self._releasable, []
        return released

    def _count_task(self, range_id: int) -> CountTask:
        slices = self._plan.slices(range_id)
        groups = tuple(self._plan.files[part.file].group for part in slices)
        return CountTask(
            context=self._context,
            range_id=range_id,
            slices=slices,
            groups=groups,
            hash_ends=tuple(self._hash_ends.get(group) for group in groups),
            stored_bytes=int(self._plan.cut.range_bytes[range_id]),
            again=range_id in self._ledger.receipts(COUNTED),
        )
