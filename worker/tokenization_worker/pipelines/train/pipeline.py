"""The training pipeline: what the engine asks of it, and the I/O of its driver. Counts never pass through here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.engine.dispatch import run_pipeline
from tokenization_worker.engine.executor import Executor, UnderWay
from tokenization_worker.engine.task import ProductLost, Task
from tokenization_worker.engine.task_progress import stored_bytes_done
from tokenization_worker.events import Counted, Event, Receipt, Watcher
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import find_receipt
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.scan import NUMBER, list_ours
from tokenization_worker.pipelines.train.count_task import CountContext, CountTask
from tokenization_worker.pipelines.train.merge_task import MergeTask
from tokenization_worker.pipelines.train.receipts import COUNTED, MergeReceipt
from tokenization_worker.pipelines.train.schedule import TrainSchedule
from tokenization_worker.pipelines.train.totals import Totals, add_up, require_few_corrupt, require_usable
from tokenization_worker.storage.base import Store


@dataclass(frozen=True, slots=True)
class CountingWork:
    """What a start found: the plan, and what is done of it."""

    store: Store
    plan: Plan
    context: CountContext
    ledger: Ledger
    limits: RunLimits
    hash_ends: dict[str, int]


def count_pieces(
    work: CountingWork, start_executor: Callable[[], Executor], watch: Watcher, should_stop: Callable[[], bool]
) -> Totals:
    """Count every range and merge the counts, as far as it is not done; returns what became of the documents."""
    pipeline = TrainPipeline(work)
    work.store.close_scratch()  # what killed starts left unfinished must not pile up over many of them
    try:
        run_pipeline(pipeline, start_executor, watch, should_stop)
    finally:
        work.store.close_scratch()
    pipeline.require_within_limits()
    return add_up(pipeline.schedule.merged_ranges())


class TrainPipeline:
    """A run of ranges and their merge."""

    def __init__(self, work: CountingWork) -> None:
        self._work = work
        self._store = work.store
        there = {int(path.rpartition("/")[2]) for path in list_ours(work.store, layout.counts_prefix(), NUMBER)}
        self.schedule = TrainSchedule(work.plan, work.context, work.ledger, there, work.hash_ends)
        self._total = int(work.plan.cut.range_bytes.sum())
        self._sums = Counter[str]()  # of the first `_n_summed` receipts
        self._n_summed = 0

    def require_within_limits(self) -> None:
        require_few_corrupt(self.schedule.dropped_files(), self._work.plan, self._work.limits)
        if self.schedule.is_counted:
            require_usable(add_up(self.schedule.merged_ranges()), self._work.limits)

    def prepare(self, task: Task) -> Task:
        return task

    def find_receipt(self, task: Task) -> Receipt | None:
        """A concurrent run's receipt of the merged counts."""
        if not isinstance(task, MergeTask):
            return None
        return find_receipt(self._store, layout.merged_receipt_path(), MergeReceipt, self._work.plan.plan_id)

    def discard(self, loss: ProductLost) -> None:
        assert isinstance(loss.product, int)
        if loss.version is not None:
            for path in layout.training_scratch(loss.product):
                self._store.delete(path)

    def release(self, products: Iterable[Hashable]) -> None:
        paths = [path for product in products for path in layout.training_scratch(_range_of(product))]
        for _ in map_at_once(self._store.discard, paths, self._store.connections):
            pass

    def error_of(self, error: BaseException) -> BaseException:
        return error

    def warnings_of(self, task: Task, receipt: Receipt) -> Iterable[str]:
        return ()

    def progress(self, receipt: Receipt | None) -> Counted:
        return self._counted(UnderWay(0, 0))

    def advanced(self, state: UnderWay) -> Event:
        return self._counted(state)

    def _counted(self, state: UnderWay) -> Counted:
        """How far the counting is, with the parts of ranges that are under way."""
        receipts, sums = self._work.ledger.receipts(COUNTED), self._sums
        for receipt in self._work.ledger.receipts_from(COUNTED, self._n_summed):
            for name in ("stored_bytes", "source_bytes", "pieces", "documents"):
                sums[name] += getattr(receipt, name)
            sums["quarantined"] += sum(receipt.quarantined.values())
            sums["distinct"] = max(sums["distinct"], receipt.distinct)
        self._n_summed = len(receipts)
        parts = [
            (task, advance)
            for task, advance in state.advances
            if isinstance(task, CountTask) and task.range_id not in receipts
        ]
        expansion = sums["source_bytes"] / sums["stored_bytes"] if sums["source_bytes"] else 0.0
        begun = sum(stored_bytes_done(advance, task.stored_bytes, expansion) for task, advance in parts)
        return Counted(
            ranges_done=len(receipts),
            ranges=self._work.plan.n_ranges,
            bytes_done=sums["stored_bytes"] + begun,
            bytes_total=self._total,
            source_bytes=sums["source_bytes"] + sum(advance.source_bytes for _, advance in parts),
            pieces=sums["pieces"],
            distinct=sums["distinct"],
            documents=sums["documents"],
            quarantined=sums["quarantined"],
            workers=state.workers,
        )


def _range_of(product: Hashable) -> int:
    assert isinstance(product, int)
    return product
