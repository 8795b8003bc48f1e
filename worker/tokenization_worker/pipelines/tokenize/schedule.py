"""The schedule of the tokenize pipeline: which task comes next, and what can be deleted. Does no I/O.

Builds outrank tokenizing, so that segments do not pile up. Which range a worker reads next is left to `RangeQueue`, and
which segments are there and needed to `Products`. A range is tokenized again only if its segment is gone and a shard
still needs it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from tokenization_worker.engine.products import Products
from tokenization_worker.engine.task import ProductLost, Task, Worker, WorkerLost
from tokenization_worker.events import Receipt
from tokenization_worker.output.layout import ScatterKey, ShardKey
from tokenization_worker.output.ledger.receipts import RangeReceipt, ScatterReceipt, ShardReceipt, Span
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.range_queue import RangeQueue
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.scatter_task import ScatterTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlan, ShardPlanner, WindowPlan
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShuffledShard, ShufflePlanner

RELEASED_A_TASK = 16
"""Segments that a task deletes before its own work: a call each. What is left at the end is deleted then."""

_NODES_FOR_DOUBT = 3
"""After losing this many nodes, a range is retried in isolation: one document may take its container's memory."""


class AllScattered(NamedTuple):
    """All scattered objects of a stream, as one product: each shuffled shard of the stream needs it."""

    stream: int


Item = int | ScatterKey | AllScattered | ShardKey
"""A range by its number, whose product is a segment; a window, whose product is a scattered object; or a shard, which
is durable."""


class TokenizeSchedule:
    """The state of a run's work: what is done, what is under way, what can start now."""

    def __init__(
        self,
        plan: Plan,
        context: RunContext,
        ledger: TokenizeLedger,
        mismatched: frozenset[ShardKey],
        expected: Mapping[ShardKey, ShardSums] | None = None,
    ) -> None:
        self._plan = plan
        self._context = context
        self._ledger = ledger
        self._mismatched = mismatched
        self._expected = expected or {}
        self._hash_ends = context.data.source.hash_ends
        self.shard_planner = _make_planner(plan, context)
        self._queue = RangeQueue(plan, ledger.ranges)
        self._isolated: set[int] = set()
        self._to_build: deque[ScatterKey | ShardKey] = deque()
        self._windows: dict[ScatterKey, WindowPlan] = {}  # those of streams whose shards are not all built
        self._shards: dict[ShardKey, ShardPlan | ShuffledShard] = {}  # those that are planned and not built
        self._shards_left: Counter[int] = Counter()  # of each shuffled stream: its planned shards that are not built
        self._first_needed = 0
        """All shards with tokens of the ranges before this one are planned."""
        self._products: Products[Item] = Products(
            [*ledger.segments, *ledger.scattered],
            needs_of=self._needs_of,
            is_final=self._is_final,
            lost_reason="SegmentLost",
            words_of=_words_of,
        )
        self.shards_done = 0
        for range_id in sorted(ledger.ranges):
            self._plan_from(ledger.ranges[range_id])
        for range_id in sorted(ledger.lost_lists):
            self._products.make_again(range_id)

    def _needs_of(self, item: Item) -> Iterable[Item]:
        match item:
            case int():
                return ()
            case AllScattered(stream):
                return self._shuffle_planner.windows_of(stream)
            case ScatterKey():
                spans = self._windows[item].spans
            case ShardKey():
                shard = self._shards[item]
                if isinstance(shard, ShuffledShard):
                    return (AllScattered(shard.stream),)
                spans = shard.spans
        return {span.range_id: None for span in spans}

    def _is_final(self, item: Item) -> bool:
        """Whether every item that needs a product has been added."""
        if isinstance(item, int):
            return item < self._first_needed
        return isinstance(item, ScatterKey) and item not in self._windows

    @property
    def _shuffle_planner(self) -> ShufflePlanner:
        assert isinstance(self.shard_planner, ShufflePlanner), "only a shuffled run scatters"
        return self.shard_planner

    def next_task(
        self, *, worker: Worker | None = None, busy: int = 0, slots: int = 1
    ) -> TokenizeTask | ScatterTask | BuildTask | None:
        while self._to_build or (again := self._products.next_again()) is not None:
            if self._to_build:
                item = self._to_build.popleft()
                if not self._products.begin(item):
                    continue
                return self._scatter_task(item) if isinstance(item, ScatterKey) else self._build_task(item)
            match again:
                case AllScattered():
                    self._book(again)
                case ScatterKey():
                    return self._scatter_task(again)
                case int():
                    return self._tokenize_task(again)
        chosen = self._queue.take(worker, busy=busy, slots=slots)
        return None if chosen is None else self._tokenize_task(chosen)

    @property
    def is_finished(self) -> bool:
        return (
            len(self._ledger.ranges) == self._plan.n_ranges
            and not self._products.is_any_made_again
            and self.shard_planner.is_complete
            and self.shards_done == sum(self.shard_planner.shard_counts)
        )

    def done(self, task: Task, receipt: Receipt, worker: Worker | None = None) -> None:
        match receipt:
            case RangeReceipt():
                self._range_done(receipt, worker)
            case ScatterReceipt():
                self._book(receipt.key)
                if receipt.key not in self._ledger.scatters:
                    self._ledger.add_scatter(receipt)
                    self._plan_from_scattered(receipt)
            case ShardReceipt():
                key = receipt.key
                self._ledger.add_shard(receipt)
                self._products.done(key, is_scratch=False)
                shard = self._shards.pop(key)
                self.shards_done += 1
                if isinstance(shard, ShuffledShard):
                    stream = shard.stream
                    self._products.used(lambda item: isinstance(item, ScatterKey) and item.stream == stream)
                    self._shards_left[shard.stream] -= 1
                    self._release_scattered(shard.stream)
            case _:
                raise AssertionError(f"{task.product}: a receipt of {type(receipt).__name__}")

    def _range_done(self, receipt: RangeReceipt, worker: Worker | None) -> None:
        self._queue.ended(receipt.range_id, worker)
        self._book(receipt.range_id)
        if receipt.range_id not in self._ledger.ranges:
            self._ledger.add_range(receipt)
            self._plan_from(receipt)

    def _book(self, item: Item) -> None:
        """An item's product is there: what waited for it may begin."""
        waiting = self._products.done(item, is_scratch=True, is_use=not isinstance(item, AllScattered))
        self._to_build.extend(each for each in waiting if isinstance(each, ScatterKey | ShardKey))

    def product_lost(self, task: Task, loss: ProductLost) -> bool:
        assert isinstance(task, BuildTask | ScatterTask)
        key = _key_of(task)
        if isinstance(loss.product, ScatterKey):
            self._to_build.append(key)
            self._products.gone(AllScattered(loss.product.stream))
            return self._products.lost(loss.product, key, loss.detail)
        assert isinstance(loss.product, int)
        if self._products.is_made_again(key):
            self._products.put_back(key)
        else:
            self._to_build.append(key)
        return self._products.lost(loss.product, key, loss.detail)

    def worker_lost(self, task: Task, loss: WorkerLost, times: int, worker: Worker | None) -> None:
        """A range that has lost a worker is tokenized in isolation: one of its documents may have crashed it."""
        self._queue.gone(worker)
        assert isinstance(task, BuildTask | ScatterTask | TokenizeTask)
        self._products.give_back(task.releasable)
        match task:
            case BuildTask() | ScatterTask():
                key = _key_of(task)
                if self._products.is_made_again(key):
                    self._products.put_back(key)
                else:
                    self._to_build.append(key)
            case TokenizeTask(range_id=range_id):
                self._queue.ended(range_id, None)
                if self._products.is_made_again(range_id):
                    self._products.put_back(range_id)
                else:
                    self._queue.put_back(range_id)
                if times >= (_NODES_FOR_DOUBT if loss.with_node else 1):
                    self._isolated.add(range_id)

    @property
    def segments(self) -> frozenset[int]:
        """The ranges whose segment is there."""
        return frozenset(item for item in self._products.there if isinstance(item, int))

    @property
    def scattered(self) -> frozenset[ScatterKey]:
        """The windows whose scattered object is there."""
        return frozenset(item for item in self._products.there if isinstance(item, ScatterKey))

    def take_releasable(self, most: int | None = None) -> tuple[int | ScatterKey, ...]:
        """Ranges and windows whose product is there and that no task needs any more, each once; at most `most`."""
        first_needed = self.shard_planner.first_needed_range()
        if first_needed > self._first_needed:
            passed, self._first_needed = range(self._first_needed, first_needed), first_needed
            self._products.release(passed)
        taken = self._products.take_releasable(most)
        return tuple(item for item in taken if isinstance(item, int | ScatterKey))

    def corrupt_files(self) -> Mapping[int, tuple[str, str]]:
        """Corrupt files known so far: file -> (outcome, detail)."""
        return self._ledger.verdicts

    def _plan_from(self, receipt: RangeReceipt) -> None:
        for result in receipt.slices:
            if not result.is_read:
                self._ledger.add_verdict(result.file, result.outcome, result.detail)
        for part in self.shard_planner.add(receipt):
            if isinstance(part, ShardPlan):
                self._plan_shard(part)
            else:
                self._plan_window(part)
        if isinstance(self.shard_planner, ShufflePlanner):
            self._plan_shuffled()

    def _plan_window(self, window: WindowPlan) -> None:
        self._windows[window.key] = window
        known = self._ledger.scatters.get(window.key)
        if known is not None:
            self._shuffle_planner.add_scatter(known)
            return
        self._products.add(window.key)
        self._to_build.append(window.key)

    def _plan_from_scattered(self, receipt: ScatterReceipt) -> None:
        self._shuffle_planner.add_scatter(receipt)
        self._plan_shuffled()

    def _plan_shuffled(self) -> None:
        """Plan the shards of streams all of whose windows are scattered now."""
        for stream, shards in self._shuffle_planner.take_streams():
            windows = self._shuffle_planner.windows_of(stream)
            if self._products.there.issuperset(windows):
                self._products.done(AllScattered(stream), is_scratch=True)
            self._shards_left[stream] = sum(self._plan_shard(shard) for shard in shards)
            self._release_scattered(stream)

    def _plan_shard(self, shard: ShardPlan | ShuffledShard) -> bool:
        """Whether the shard is yet to be built."""
        key = shard.name.key
        if key in self._ledger.shards and key not in self._mismatched:
            self.shards_done += 1
            return False
        self._shards[key] = shard
        self._products.add(key)
        self._to_build.append(key)
        return True

    def _release_scattered(self, stream: int) -> None:
        """Let go of the scattered objects of a stream whose shards are all built."""
        if not self._shards_left[stream]:
            windows = self._shuffle_planner.windows_of(stream)
            for window in windows:
                self._windows.pop(window, None)
            self._products.release(windows)

    def _tokenize_task(self, range_id: int) -> TokenizeTask:
        known = self._ledger.ranges.get(range_id)
        if known is None:
            dropped, crashing = self._ledger.verdicts, self._ledger.crash_verdicts
        else:  # a lost segment: what its receipt left out, and nothing else, or its tokens would move
            dropped = {result.file: (result.outcome, result.detail) for result in known.slices if not result.is_read}
            crashing = {result.file: result.crash_verdicts for result in known.slices}
        slices = self._plan.slices(range_id)
        files = {part.file for part in slices}
        return TokenizeTask(
            context=self._context,
            range_id=range_id,
            slices=slices,
            stored_bytes=int(self._plan.cut.range_bytes[range_id]),
            dropped=tuple((file, *dropped[file]) for file in sorted(files & dropped.keys())),
            crash_verdicts=tuple((file, item) for file in sorted(files & crashing.keys()) for item in crashing[file]),
            again=known is not None,
            isolated=known is None and range_id in self._isolated,
            releasable=self.take_releasable(RELEASED_A_TASK),
            hash_ends=tuple(self._hash_ends.get(self._plan.files[part.file].group) for part in slices)
            if self._hash_ends
            else (),
        )

    def _scatter_task(self, key: ScatterKey) -> ScatterTask:
        window = self._windows[key]
        digests, files = self._describe_segments(window.spans)
        releasable, again = self.take_releasable(RELEASED_A_TASK), key in self._ledger.scatters
        return ScatterTask(self._context, window, digests, files, releasable, again)

    def _build_task(self, key: ShardKey) -> BuildTask:
        shard = self._shards[key]
        digests, files = self._describe_segments(shard.spans)
        scattered: tuple[int, ...] = ()
        if isinstance(shard, ShuffledShard):
            windows = self._shuffle_planner.windows_of(shard.stream)
            scattered = tuple(self._ledger.scatters[window].size for window in windows)
        return BuildTask(
            context=self._context,
            shard=shard,
            segment_digests=digests,
            slice_files=files,
            repair=key in self._mismatched,
            releasable=self.take_releasable(RELEASED_A_TASK),
            scattered=scattered,
            expected=self._expected.get(key),
        )

    def _describe_segments(self, spans: Iterable[Span]) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        """Of each span the digest of its segment, and the file of each slice of its range."""
        receipts = [self._ledger.ranges[span.range_id] for span in spans]
        files = tuple(tuple(part.file for part in receipt.slices) for receipt in receipts)
        return tuple(receipt.segment_digest for receipt in receipts), files


def _make_planner(plan: Plan, context: RunContext) -> ShardPlanner | ShufflePlanner:
    output = context.data.output
    groups = _count_files(plan) if context.data.path_groups else ()
    if output.shuffle is None:
        rows, tokens = output.sequence, output.shard_tokens
        return ShardPlanner(plan.cut, len(plan.files), context.streams, tokens, rows, groups=groups)
    assert plan.scattering is not None, "the plan of a shuffled run has it"
    return ShufflePlanner(plan.cut, len(plan.files), context.streams, output, plan.scattering, groups)


def _key_of(task: BuildTask | ScatterTask) -> ShardKey | ScatterKey:
    return task.shard.name.key if isinstance(task, BuildTask) else task.window.key


def _words_of(item: Item) -> str:
    match item:
        case int():
            return f"the segment of range {item}"
        case AllScattered(stream):
            return f"the scattered objects of stream {stream}"
        case _:
            return item.words


def _count_files(plan: Plan) -> tuple[tuple[str, int], ...]:
    """The groups in order, with their numbers of files."""
    return tuple((name, sum(1 for _ in files)) for name, files in groupby(plan.files, key=lambda file: file.group))
