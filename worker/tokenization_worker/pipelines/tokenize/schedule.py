"""What to do next, and what can be forgotten. Decides; does no I/O and runs nothing.

Builds outrank tokenizing, so that segments do not pile up. Ranges far above the usual size go first, and the pieces
of a compressed file count as one there, so that one straggler does not hold all shards back; the rest go in order,
because shards are built in order. Which worker takes which piece is left to `lanes`. A range is tokenized again only
if its segment is gone and a shard still needs it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from tokenization_worker.errors import TemporaryError
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.tokenize.decoder_affinity import Lanes, Worker
from tokenization_worker.pipelines.tokenize.shard_planner import Assembly, ShardPlan
from tokenization_worker.pipelines.tokenize.tasks import BuildTask, RunContext, TokenizeTask

OVERSIZE = 2
"""A range this many times the median goes first."""

SPENT_A_TASK = 16
"""Segments that a task deletes before its own work: a call each. What is left at the end is deleted then."""

_MAX_LOSSES = 3

_NODES_FOR_DOUBT = 3
"""After losing this many nodes, a range is retried in isolation: one document may take its container's memory."""

_MAX_CRASHES = 3
_MAX_NODES_LOST = 20
"""How often one task may lose its worker, and how often its node with everything on it: a node that is taken away
says nothing of the task, but a task may also take its node's memory."""


class Schedule:
    """The state of a run's work: what is done, what is under way, what can start now."""

    def __init__(
        self,
        plan: Plan,
        context: RunContext,
        ledger: Ledger,
        damaged: frozenset[tuple[str, int]],
        expected: Mapping[tuple[str, int], ShardSums] | None = None,
    ) -> None:
        self._plan = plan
        self._context = context
        self._ledger = ledger
        self._damaged = damaged
        self._expected = expected or {}
        self.assembly = Assembly(plan.cut, len(plan.files), context.streams, context.data.output.shard_tokens)
        self._lanes = Lanes(plan, ledger.ranges)
        self._to_tokenize: deque[int] = deque()
        self._again: deque[int] = deque()
        self._redoing: set[int] = set()
        self._losses: dict[int, int] = {}
        self._losses_before: dict[tuple[str, int], dict[int, int]] = {}
        self._workers_lost: Counter[tuple[str, bool]] = Counter()
        self._isolated: set[int] = set()
        self._to_build: deque[ShardPlan] = deque()
        self._waiting: dict[int, list[ShardPlan]] = {}  # shards by a range whose segment they wait for
        self._uses: dict[int, int] = {}
        self._first_unreleased = 0
        self._spent: deque[int] = deque()  # ranges whose segment no shard needs any more
        self.shards_done = 0
        for range_id in sorted(ledger.ranges):
            self._plan_shards(ledger.ranges[range_id])
        self._to_tokenize.extend(r for r in _in_order(plan, self._lanes) if r not in ledger.ranges)
        self._queued_bytes = sum(int(plan.cut.range_bytes[r]) for r in self._to_tokenize)
        for range_id in sorted(ledger.lost_lists):
            self._redo(range_id)

    def next_task(
        self, *, worker: Worker | None = None, busy: int = 0, slots: int = 1
    ) -> TokenizeTask | BuildTask | None:
        """The most useful task that can start now; `worker` will get it, if known. `busy` of the `slots` have one."""
        while self._to_build:
            shard = self._to_build.popleft()
            lost = [p.range_id for p in shard.pieces if p.range_id not in self._ledger.segments]
            if not lost:
                return self._build_task(shard)
            for range_id in lost:
                self._redo(range_id)
            self._waiting.setdefault(lost[0], []).append(shard)
        if self._again:
            return self._tokenize_task(self._again.popleft())
        chosen = self._next_range(worker, busy, slots)
        return None if chosen is None else self._tokenize_task(chosen)

    def _next_range(self, worker: Worker | None, busy: int, slots: int) -> int | None:
        range_id = self._lanes.choose(worker, self._queued_bytes, busy=busy, slots=slots)
        if range_id is None and self._to_tokenize:
            range_id = self._to_tokenize.popleft()
            self._queued_bytes -= int(self._plan.cut.range_bytes[range_id])
        if range_id is not None:
            self._lanes.started(range_id)
        return range_id

    @property
    def is_finished(self) -> bool:
        return (
            len(self._ledger.ranges) == self._plan.n_ranges
            and not self._redoing
            and self.assembly.is_complete
            and self.shards_done == sum(self.assembly.shard_counts)
        )

    def range_done(self, receipt: RangeReceipt, worker: Worker | None = None) -> None:
        """A range's segment and receipt are there; `worker` is who has read it now."""
        self._lanes.ended(receipt.range_id, worker)
        self._ledger.segments.add(receipt.range_id)
        self._redoing.discard(receipt.range_id)
        self._to_build.extend(self._waiting.pop(receipt.range_id, ()))
        if receipt.range_id not in self._ledger.ranges:
            self._ledger.ranges[receipt.range_id] = receipt
            self._plan_shards(receipt)

    def shard_done(self, shard: ShardPlan, receipt: ShardReceipt) -> None:
        """A shard and its receipt are there."""
        self._ledger.shards[shard.name.split, shard.name.index] = receipt
        self._losses_before.pop((shard.name.split, shard.name.index), None)
        self.shards_done += 1
        for range_id in {piece.range_id for piece in shard.pieces}:
            self._uses[range_id] -= 1
            if not self._uses[range_id] and range_id < self._first_unreleased:
                self._spent.append(range_id)

    def segment_lost(self, shard: ShardPlan, range_id: int, detail: str) -> bool:
        """A build found a segment missing or torn: tokenize its range again, then build again.

        True for the first to say so; several builds that were under way may find the same loss.
        """
        self._to_build.append(shard)
        losses = self._losses.get(range_id, 0)
        if losses > self._losses_before[shard.name.split, shard.name.index][range_id]:
            return False
        self._losses[range_id] = losses + 1
        if losses + 1 >= _MAX_LOSSES:
            raise TemporaryError(
                "SegmentLost",
                f"the segment of range {range_id} was lost {_MAX_LOSSES} times: {detail}",
                next_step="check the disk, or whether something deletes files below _tokenization/",
            )
        self._ledger.segments.discard(range_id)
        return True

    def task_lost(
        self, task: TokenizeTask | BuildTask, detail: str, *, with_node: bool, worker: Worker | None = None
    ) -> str:
        """A task's worker is gone, or its whole node: hand the task out again, unless that happens all the time.

        A range that has lost a worker is tokenized in isolation: one of its documents may have killed it. Returns what
        the task was to make, in words.
        """
        self._lanes.gone(worker)
        self._ledger.segments.update(task.spent)  # as far as anybody knows; deleting twice does no harm
        self._spent.extend(task.spent)
        match task:
            case BuildTask():
                self._to_build.append(task.shard)
                what = f"shard {task.shard.name.index} of split {task.shard.name.split}"
            case TokenizeTask(range_id=range_id):
                self._lanes.ended(range_id)
                if range_id in self._redoing:
                    self._again.appendleft(range_id)
                elif not self._lanes.put_back(range_id):
                    self._to_tokenize.appendleft(range_id)
                    self._queued_bytes += task.stored_bytes
                what = f"range {range_id} ({task.slices[0].uri}{' and more' if len(task.slices) > 1 else ''})"
        self._workers_lost[what, with_node] += 1
        if isinstance(task, TokenizeTask) and self._workers_lost[what, with_node] >= (
            _NODES_FOR_DOUBT if with_node else 1
        ):
            self._isolated.add(task.range_id)
        if self._workers_lost[what, with_node] >= (_MAX_NODES_LOST if with_node else _MAX_CRASHES):
            raise TemporaryError(
                "WorkerDied",
                f"{what} lost its {'node' if with_node else 'worker'} {self._workers_lost[what, with_node]} times: "
                f"{detail}",
                next_step="look at the memory of the workers and the nodes, then start the same command again",
            )
        return what

    def take_spent(self, most: int | None = None) -> tuple[int, ...]:
        """Ranges whose segment is there and no shard needs it any more, each once; at most `most` of them."""
        first_needed = self.assembly.first_needed_range()
        self._spent.extend(r for r in range(self._first_unreleased, first_needed) if not self._uses.get(r))
        self._first_unreleased = max(self._first_unreleased, first_needed)
        taken: list[int] = []
        while self._spent and (most is None or len(taken) < most):
            range_id = self._spent.popleft()
            if range_id in self._ledger.segments:
                self._ledger.segments.discard(range_id)
                taken.append(range_id)
        return tuple(taken)

    def dropped_files(self) -> dict[int, tuple[str, str]]:
        """Damaged files known so far: file -> (outcome, detail)."""
        return self._ledger.verdicts

    def _plan_shards(self, receipt: RangeReceipt) -> None:
        for result in receipt.slices:
            if not result.is_read:
                self._ledger.verdicts.setdefault(result.file, (result.outcome, result.detail))
        for shard in self.assembly.add(receipt):
            key = (shard.name.split, shard.name.index)
            if key in self._ledger.shards and key not in self._damaged:
                self.shards_done += 1
                continue
            self._to_build.append(shard)
            for range_id in {piece.range_id for piece in shard.pieces}:
                self._uses[range_id] = self._uses.get(range_id, 0) + 1

    def _redo(self, range_id: int) -> None:
        if range_id not in self._redoing:
            self._redoing.add(range_id)
            self._again.append(range_id)

    def _tokenize_task(self, range_id: int) -> TokenizeTask:
        known = self._ledger.ranges.get(range_id)
        if known is None:
            dropped, poison = self._ledger.verdicts, self._ledger.poison
        else:  # a lost segment: what its receipt left out, and nothing else, or its tokens would move
            dropped = {result.file: (result.outcome, result.detail) for result in known.slices if not result.is_read}
            poison = {result.file: result.poison for result in known.slices}
        slices = self._plan.slices(range_id)
        files = {part.file for part in slices}
        return TokenizeTask(
            context=self._context,
            range_id=range_id,
            slices=slices,
            stored_bytes=int(self._plan.cut.range_bytes[range_id]),
            dropped=tuple((file, *dropped[file]) for file in sorted(files & dropped.keys())),
            poison=tuple((file, item) for file in sorted(files & poison.keys()) for item in poison[file]),
            again=known is not None,
            isolated=known is None and range_id in self._isolated,
            spent=self.take_spent(SPENT_A_TASK),
        )

    def _build_task(self, shard: ShardPlan) -> BuildTask:
        receipts = [self._ledger.ranges[piece.range_id] for piece in shard.pieces]
        losses = {piece.range_id: self._losses.get(piece.range_id, 0) for piece in shard.pieces}
        self._losses_before[shard.name.split, shard.name.index] = losses
        return BuildTask(
            context=self._context,
            shard=shard,
            segment_digests=tuple(receipt.segment_digest for receipt in receipts),
            slice_files=tuple(tuple(part.file for part in receipt.slices) for receipt in receipts),
            repair=(shard.name.split, shard.name.index) in self._damaged,
            spent=self.take_spent(SPENT_A_TASK),
            expected=self._expected.get((shard.name.split, shard.name.index)),
        )


def _in_order(plan: Plan, lanes: Lanes) -> list[int]:
    """All ranges but those that `lanes` hands out: oversize ones first, then by number."""
    sizes = plan.cut.range_bytes.copy()
    in_order = np.ones(len(sizes), dtype=np.bool_)
    for first, end in lanes.whole_files():
        sizes[first] = sizes[first:end].sum()
        in_order[first + 1 : end] = False
    typical = float(np.median(sizes[in_order])) if len(sizes) else 0.0
    by_size = np.argsort(-sizes, kind="stable")
    oversize: list[int] = by_size[in_order[by_size] & (sizes[by_size] > OVERSIZE * typical)].tolist()
    first_ones = set(oversize)
    return oversize + [r for r in np.flatnonzero(in_order).tolist() if r not in first_ones]
