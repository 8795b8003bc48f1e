"""The work of a run: hand out tasks, take receipts, until every shard is built.

`schedule` decides, the executor runs, this loop carries values between them. It stops for a signal, for an
error of a task, and as soon as more files turn out damaged, or far more documents unusable, than the job allows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.engine.executor import Done, Executor, WorkerLost
from tokenization_worker.engine.task_progress import stored_bytes_done
from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import Advanced, Progress, WaitingForWorkers, Warned, Watcher
from tokenization_worker.formats.segment import SegmentLost
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import find_receipt
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.ledger.quarantine import TooManyUnusable
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.record import load_record, parsing
from tokenization_worker.output.scratch import discard_segments
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.tokenize.decoder_affinity import Worker
from tokenization_worker.pipelines.tokenize.schedule import Schedule
from tokenization_worker.pipelines.tokenize.tasks import BuildTask, RunContext, TokenizeTask
from tokenization_worker.pipelines.tokenize.unusable_limit import UnusableLimit
from tokenization_worker.planning.limits import too_many_corrupt
from tokenization_worker.storage.base import NotFound, Store

POLL_S = 0.2
INTERVAL_S = 1.0
"""From one event that tells how far the run is to the next."""

STOP_GRACE_S = 10.0
"""How long running tasks may take to write their receipts after a stop; Kubernetes kills after 30 s."""


class Stopped(Exception):
    """The run was asked to stop; its receipts are written and the same command goes on."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a start found: the plan, what is done of it, and which finished shards are damaged. `expansion`: source
    bytes that a stored byte is expected to be, 0 where that is not known. `expected`: of the damaged shards of a
    complete dataset, what they must be."""

    store: Store
    plan: Plan
    context: RunContext
    ledger: Ledger
    limits: RunLimits
    damaged: frozenset[tuple[str, int]]
    expansion: float = 0.0
    expected: Mapping[tuple[str, int], ShardSums] = field(default_factory=dict)


def do_missing_work(
    work: Work, start_executor: Callable[[], Executor], watch: Watcher, should_stop: Callable[[], bool]
) -> None:
    """Tokenize and build everything that is missing; the ledger is complete afterwards."""
    schedule = Schedule(work.plan, work.context, work.ledger, work.damaged, work.expected)
    _require_few_damaged(work, schedule)
    if schedule.is_finished:
        return
    unusable = UnusableLimit(work.store, work.context.epoch, work.ledger, work.limits, len(work.plan.files))
    unusable.require_room()
    report = _Reporter(work.plan, schedule, work.ledger, watch, work.expansion)
    work.store.close_scratch()  # what killed starts left unfinished must not pile up over many of them
    executor = start_executor()
    try:
        report.send(None)
        report.tick(executor)
        _hand_out(work, schedule, unusable, executor, report, watch, should_stop)
    except Stopped:
        executor.close(grace_s=STOP_GRACE_S)
        raise
    except TemporaryError as error:
        if error.reason == "WorkerDied" and should_stop():  # the signal went to the whole process group
            raise Stopped from error
        raise
    finally:
        executor.close()
        work.store.close_scratch()


def _hand_out(
    work: Work,
    schedule: Schedule,
    unusable: UnusableLimit,
    executor: Executor,
    report: _Reporter,
    watch: Watcher,
    should_stop: Callable[[], bool],
) -> None:
    """Keep every slot busy until nothing is left to do."""
    in_flight = 0
    has_complained = False
    idle: list[Worker] = []  # those that have just ended a task
    while not should_stop():
        while in_flight < (slots := executor.slots):
            worker = idle.pop() if idle else None
            task = schedule.next_task(worker=worker, busy=in_flight, slots=slots)
            if task is None:
                break
            executor.submit(unusable.give_room(task), worker)
            in_flight += 1
        if not in_flight:
            assert schedule.is_finished, "nothing to do and nothing under way, but not everything is done"
            discard_segments(work.store, work.context.epoch, schedule.take_spent())
            return
        idle.clear()
        if not has_complained and (complaint := executor.complaint()):
            has_complained = True
            watch(Warned(complaint))
        for done in executor.wait(POLL_S):
            in_flight -= 1
            if isinstance(done.result, WorkerLost) and should_stop():  # the signal went to the whole process group
                raise Stopped
            if isinstance(done.result, TooManyUnusable):
                raise unusable.exceeded(done.result)
            receipt = _take(work, schedule, done, watch)
            if done.worker is not None and not isinstance(done.result, WorkerLost):
                idle.append(done.worker)
            report.send(receipt)
        report.tick(executor)
        _require_few_damaged(work, schedule)
        unusable.require_room()
    raise Stopped


def _take(work: Work, schedule: Schedule, done: Done, watch: Watcher) -> RangeReceipt | ShardReceipt | None:
    """Book a task's end and return its receipt (None where it must run again), or raise its error."""
    match done.result:
        case RangeReceipt() as receipt:
            schedule.range_done(receipt, done.worker)
            if isinstance(done.task, TokenizeTask) and done.task.isolated:
                _tell_poison(work.plan, receipt, watch)
            return receipt
        case ShardReceipt() as receipt if isinstance(done.task, BuildTask):
            schedule.shard_done(done.task.shard, receipt)
            return receipt
        case SegmentLost() as loss if isinstance(done.task, BuildTask):
            return _take_loss(work, schedule, done.task, loss)
        case WorkerLost() as loss:
            what = schedule.task_lost(done.task, loss.detail, with_node=loss.with_node, worker=done.worker)
            watch(Warned(f"{what} lost its {'node' if loss.with_node else 'worker'} and is done again: {loss.detail}"))
            return None
        case MemoryError():  # of a process that lives still, but for the task it is as good as dead
            lost = WorkerLost("out of memory", with_node=False)
            return _take(work, schedule, Done(done.task, lost, done.worker), watch)
        case BaseException() as error:
            raise error
        case result:
            raise AssertionError(f"{type(done.task).__name__} returned {type(result).__name__}")


def _tell_poison(plan: Plan, receipt: RangeReceipt, watch: Watcher) -> None:
    """Name the documents for which a range had to be done again."""
    for result in receipt.slices:
        for poison in result.poison:
            place = f"{plan.files[result.file].uri} @ {poison.position:,}"
            watch(
                Warned(
                    f"{place}: this document crashes the tokenizer even when encoded alone; it was quarantined: "
                    f"{poison.detail}"
                )
            )


def _take_loss(work: Work, schedule: Schedule, task: BuildTask, loss: SegmentLost) -> ShardReceipt | None:
    """A concurrent run deletes segments of shards that it has built; otherwise the range is done again."""
    receipt = _find_built(work, task)
    if receipt is None:
        if schedule.segment_lost(task.shard, loss.range_id, loss.detail) and loss.version is not None:
            path = layout.segment_path(work.context.epoch, loss.range_id)
            work.store.delete(path, version=loss.version)  # a concurrent run may have written it again
        return None
    schedule.shard_done(task.shard, receipt)
    return receipt


def _find_built(work: Work, task: BuildTask) -> ShardReceipt | None:
    """A concurrent run's receipt of the task's shard.

    That of a shard that is to be repaired tells of the shard as it was: it counts once the shard is so again.
    """
    name = task.shard.name
    path = layout.shard_receipt_path(work.context.epoch, name.split, name.index)
    receipt = find_receipt(work.store, path, ShardReceipt, work.plan.plan_id)
    is_built = receipt is not None and not (task.repair and find_changed_shards(work.store, [receipt]))
    return receipt if is_built else None


def _require_few_damaged(work: Work, schedule: Schedule) -> None:
    """Raise the first damaged file's error if there are more than the job allows."""
    dropped = schedule.dropped_files()
    n_files = len(work.plan.files)
    if len(dropped) <= work.limits.max_corrupt_files.allowed(n_files):
        return
    file = min(dropped)
    outcome, detail = dropped[file]
    what = f"{work.plan.files[file].uri}: {detail}{_near(work.store, file)}"
    raise too_many_corrupt(outcome, what, len(dropped), n_files, work.limits.max_corrupt_files)


def _near(store: Store, file: int) -> str:
    """Where the file is damaged, as its verdict has it; nothing where it was deleted meanwhile, or does not know."""
    path = layout.verdict_path(file)
    try:
        data = store.read(path)
    except NotFound:
        return ""
    with parsing(store.uri, path):
        offset = load_record(data)["offset"]
        return "" if offset is None else f", near stored byte {offset:,}"


class _Reporter:
    """Folds receipts into the numbers that a watcher sees."""

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        ledger: Ledger,
        watch: Watcher,
        expansion: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._schedule = schedule
        self._ledger = ledger
        self._watch = watch
        self._counted = 0
        self._sums = Counter[str]()
        self._total = int(plan.cut.range_bytes.sum())
        self._expansion = expansion
        self._clock = clock
        self._ticked_at = -INTERVAL_S
        self._awaited = 0

    def send(self, receipt: RangeReceipt | ShardReceipt | None) -> None:
        ranges = self._ledger.ranges  # only ever added to: those not counted yet, also a concurrent run's, are the last
        for added in islice(reversed(ranges.values()), len(ranges) - self._counted):
            self._count(added)
        self._counted = len(ranges)
        assembly = self._schedule.assembly
        self._watch(
            Progress(
                ranges_done=self._counted,
                ranges=self._plan.n_ranges,
                bytes_done=self._sums["stored"],
                bytes_total=self._total,
                tokens=self._sums["tokens"],
                documents=self._sums["documents"],
                quarantined=self._sums["quarantined"],
                source_bytes=self._sums["source"],
                shards_done=self._schedule.shards_done,
                shards=sum(assembly.shard_counts) if assembly.is_complete else None,
                receipt=receipt,
            )
        )

    def tick(self, executor: Executor) -> None:
        """Once a second: how far the run is, with the parts of ranges that are under way."""
        now = self._clock()
        if now < self._ticked_at + INTERVAL_S:
            return
        self._ticked_at = now
        state = executor.under_way()
        if not state.workers and state.wanted != self._awaited:
            self._awaited = state.wanted
            self._watch(WaitingForWorkers(state.wanted))
        # A range that is done again is counted already.
        parts = [
            (task, advance)
            for task, advance in state.advances
            if isinstance(task, TokenizeTask) and task.range_id not in self._ledger.ranges
        ]
        expansion = self._sums["source"] / self._sums["stored"] if self._sums["source"] else self._expansion
        done = sum(stored_bytes_done(advance, task.stored_bytes, expansion) for task, advance in parts)
        self._watch(
            Advanced(
                bytes_done=self._sums["stored"] + done,
                bytes_total=self._total,
                tokens=self._sums["tokens"] + sum(advance.tokens for _, advance in parts),
                source_bytes=self._sums["source"] + sum(advance.source_bytes for _, advance in parts),
                workers=state.workers,
            )
        )

    def _count(self, receipt: RangeReceipt) -> None:
        self._sums["stored"] += receipt.stored_bytes
        self._sums["source"] += receipt.source_bytes
        for result in receipt.slices:
            self._sums["tokens"] += sum(result.tokens)
            self._sums["documents"] += sum(result.docs)
            self._sums["quarantined"] += sum(result.quarantined.values())
