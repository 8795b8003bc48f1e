"""The tokenize pipeline: what the engine asks of it, and the I/O of its driver. Token bytes never pass through here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.engine.dispatch import finish_if_done, run_pipeline
from tokenization_worker.engine.executor import Executor, UnderWay
from tokenization_worker.engine.task import ProductLost, Task
from tokenization_worker.events import Event, Receipt, Watcher
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import find_receipt
from tokenization_worker.output.layout import ScatterKey, ShardKey
from tokenization_worker.output.ledger.quarantine import TooManyUnusable
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.record import load_record, parsing
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.progress import ProgressSums
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.schedule import TokenizeSchedule
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.pipelines.tokenize.unusable_limit import UnusableLimit
from tokenization_worker.planning.limits import too_many_corrupt
from tokenization_worker.storage.base import NotFound, Store


@dataclass(frozen=True, slots=True)
class Work:
    """What a start found: the plan, what is done of it, and which finished shards are mismatched. `expansion`: source
    bytes that a stored byte is expected to be, 0 where that is not known. `expected`: of the mismatched shards of a
    complete dataset, what they must be."""

    store: Store
    plan: Plan
    context: RunContext
    ledger: TokenizeLedger
    limits: RunLimits
    mismatched: frozenset[ShardKey]
    expansion: float = 0.0
    expected: Mapping[ShardKey, ShardSums] = field(default_factory=dict)


def do_missing_work(
    work: Work, start_executor: Callable[[], Executor], watch: Watcher, should_stop: Callable[[], bool]
) -> None:
    """Tokenize and build everything that is missing; the ledger is complete afterwards."""
    pipeline = TokenizePipeline(work)
    pipeline.require_few_corrupt()

    def start() -> Executor:
        work.store.close_scratch()  # what killed starts left unfinished must not pile up over many of them
        return start_executor()

    try:
        run_pipeline(pipeline, start, watch, should_stop)
    finally:
        work.store.close_scratch()
    work.ledger.set_segments(pipeline.schedule.segments, pipeline.schedule.scattered)


def is_done_without_workers(work: Work) -> bool:
    """Whether no task is left: the ledger is complete then. Raises what a run would end with at once."""
    work.store.close_scratch()  # what killed starts left unfinished must not pile up over many of them
    pipeline = TokenizePipeline(work)
    pipeline.require_few_corrupt()
    is_done = finish_if_done(pipeline)
    if is_done:
        work.ledger.set_segments(pipeline.schedule.segments, pipeline.schedule.scattered)
    return is_done


class TokenizePipeline:
    """A run of ranges and shards."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._store = work.store
        self._epoch = work.context.epoch
        self.schedule = TokenizeSchedule(work.plan, work.context, work.ledger, work.mismatched, work.expected)
        self._unusable = UnusableLimit(work.store, self._epoch, work.ledger, work.limits, len(work.plan.files))
        self._progress = ProgressSums(work.plan, self.schedule, work.ledger, work.expansion)

    def require_within_limits(self) -> None:
        self.require_few_corrupt()
        self._unusable.require_room()

    def require_few_corrupt(self) -> None:
        """Raise the first corrupt file's error if there are more than the job allows."""
        corrupt = self.schedule.corrupt_files()
        n_files, limit = len(self._work.plan.files), self._work.limits.max_corrupt_files
        if len(corrupt) <= limit.allowed(n_files):
            return
        file = min(corrupt)
        outcome, detail = corrupt[file]
        what = f"{self._work.plan.files[file].uri}: {detail}{_near(self._store, file)}"
        raise too_many_corrupt(outcome, what, len(corrupt), n_files, limit)

    def prepare(self, task: Task) -> Task:
        return self._unusable.give_room(task) if isinstance(task, TokenizeTask) else task

    def find_receipt(self, task: Task) -> Receipt | None:
        """A concurrent run's receipt of the task's shard.

        That of a shard that is to be repaired tells of the shard as it was: it counts once the shard is so again.
        """
        if not isinstance(task, BuildTask):
            return None
        name = task.shard.name
        path = layout.shard_receipt_path(self._epoch, *name.key)
        receipt = find_receipt(self._store, path, ShardReceipt, self._work.plan.plan_id)
        is_built = receipt is not None and not (task.repair and find_changed_shards(self._store, [receipt]))
        return receipt if is_built else None

    def discard(self, loss: ProductLost) -> None:
        if loss.version is not None:
            path = layout.scratch_path(self._epoch, _scratch_of(loss.product))
            self._store.delete(path, version=loss.version)

    def release(self, products: Iterable[Hashable]) -> None:
        discard_scratch(self._store, self._epoch, map(_scratch_of, products))

    def error_of(self, error: BaseException) -> BaseException:
        return self._unusable.exceeded(error) if isinstance(error, TooManyUnusable) else error

    def warnings_of(self, task: Task, receipt: Receipt) -> Iterator[str]:
        """Name the documents for which a range had to be done again."""
        if not (isinstance(task, TokenizeTask) and task.isolated and isinstance(receipt, RangeReceipt)):
            return
        for result in receipt.slices:
            for verdict in result.crash_verdicts:
                place = f"{self._work.plan.files[result.file].uri} @ {verdict.position:,}"
                yield (
                    f"{place}: this document crashes the tokenizer even when encoded alone; it was quarantined: "
                    f"{verdict.detail}"
                )

    def progress(self, receipt: Receipt | None) -> Event:
        return self._progress.after(receipt)

    def advanced(self, state: UnderWay) -> Event:
        return self._progress.with_parts(state)


def _scratch_of(product: Hashable) -> int | ScatterKey:
    """The range whose segment, or the window whose scattered object a product is."""
    assert isinstance(product, int | ScatterKey)
    return product


def _near(store: Store, file: int) -> str:
    """Where the file is corrupt, as its verdict has it; nothing where it was deleted meanwhile, or does not know."""
    path = layout.verdict_path(file)
    try:
        data = store.read(path)
    except NotFound:
        return ""
    with parsing(store.uri, path):
        offset = load_record(data)["offset"]
        return "" if offset is None else f", near stored byte {offset:,}"
