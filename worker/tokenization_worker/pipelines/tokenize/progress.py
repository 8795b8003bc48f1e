"""Computes the progress of a run from its receipts and its tasks' reports. Decides; does no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.task_progress import stored_bytes_done
from tokenization_worker.events import Advanced, GroupCounts, Progress, Receipt
from tokenization_worker.output.ledger.receipts import RangeReceipt, SliceResult
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.schedule import TokenizeSchedule
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShufflePlanner


class ProgressSums:
    """Folds receipts into the numbers that a watcher sees.

    `expansion`: source bytes that a stored byte is expected to be, until receipts say so; 0 where that is not known.
    """

    def __init__(self, plan: Plan, schedule: TokenizeSchedule, ledger: TokenizeLedger, expansion: float = 0.0) -> None:
        self._plan = plan
        self._schedule = schedule
        self._ledger = ledger
        self._expansion = expansion
        self._counted = 0
        self._sums = Counter[str]()
        self._total = int(plan.cut.range_bytes.sum())
        files = Counter(file.group for file in plan.files if file.group)
        self._groups = {name: GroupCounts(name, count, 0, 0, 0, 0, 0) for name, count in files.items()}

    def after(self, receipt: Receipt | None) -> Progress:
        """What is done now; `receipt`: of what has just been done."""
        for added in self._ledger.ranges_from(self._counted):  # also a concurrent run's
            self._count(added)
        self._counted = len(self._ledger.ranges)
        planner = self._schedule.shard_planner
        scatters = (planner.windows_done, planner.windows) if isinstance(planner, ShufflePlanner) else (0, 0)
        return Progress(
            ranges_done=self._counted,
            ranges=self._plan.n_ranges,
            bytes_done=self._sums["stored"],
            bytes_total=self._total,
            tokens=self._sums["tokens"],
            documents=self._sums["documents"],
            quarantined=self._sums["quarantined"],
            source_bytes=self._sums["source"],
            shards_done=self._schedule.shards_done,
            shards=sum(planner.shard_counts) if planner.is_complete else None,
            receipt=receipt,
            groups=tuple(self._groups.values()),
            windows_done=scatters[0],
            windows=scatters[1],
        )

    def with_parts(self, state: UnderWay) -> Advanced:
        """What is done now, with the parts of ranges that are under way."""
        # A range that is done again is counted already.
        parts = [
            (task, advance)
            for task, advance in state.advances
            if isinstance(task, TokenizeTask) and task.range_id not in self._ledger.ranges
        ]
        expansion = self._sums["source"] / self._sums["stored"] if self._sums["source"] else self._expansion
        done = sum(stored_bytes_done(advance, task.stored_bytes, expansion) for task, advance in parts)
        return Advanced(
            bytes_done=self._sums["stored"] + done,
            bytes_total=self._total,
            tokens=self._sums["tokens"] + sum(advance.tokens for _, advance in parts),
            source_bytes=self._sums["source"] + sum(advance.source_bytes for _, advance in parts),
            workers=state.workers,
        )

    def _count(self, receipt: RangeReceipt) -> None:
        self._sums["stored"] += receipt.stored_bytes
        self._sums["source"] += receipt.source_bytes
        for result in receipt.slices:
            self._sums["tokens"] += sum(result.tokens)
            self._sums["documents"] += sum(result.docs)
            self._sums["quarantined"] += sum(result.quarantined.values())
            if self._groups:
                name = self._plan.files[result.file].group
                self._groups[name] = add_slice(self._groups[name], result)


def add_slice(counts: GroupCounts, result: SliceResult) -> GroupCounts:
    """The counts of a group with those of one more slice of its files."""
    return replace(
        counts,
        documents=counts.documents + sum(result.docs),
        bytes=counts.bytes + (result.read_bytes or 0),
        tokens=counts.tokens + sum(result.tokens),
        quarantined=counts.quarantined + sum(result.quarantined.values()),
        left_out=counts.left_out + (result.left_out or 0),
    )
