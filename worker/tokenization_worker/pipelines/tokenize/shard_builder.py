"""The build task: slices of segments, or cells of scattered objects, become one shard, its documents sidecar or its
parts, and its receipt.

Order of writing: sidecar, the shard's side files (parts are the first of them), its main file, receipt, so a receipt
says that all are there. Final names are create-only; only a later epoch than the first, or
the repair of a mismatched shard, may replace what it finds. A voided epoch may not even create: its names may be
none of the dataset's. Nor may the repair of a complete dataset whose shard came out otherwise than its table says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tokenization_worker.api.data import COUNT_IN_31_BITS, MOST_IN_31_BITS
from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.formats.base import ByteSink
from tokenization_worker.formats.cells import CellReader, ScatterLost
from tokenization_worker.formats.segment import SegmentLost
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, create_receipt, place_files
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.epochs import require_current
from tokenization_worker.output.ledger.receipts import ShardReceipt, WrittenFile
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.object_metadata import digest_metadata
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.output.writers import require_same_writers
from tokenization_worker.pipelines.tokenize.cell_feed import (
    ShuffledRowFeed,
    ShuffledRunFeed,
    ShuffledUnits,
    shuffled_runs,
)
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.feeds import (
    RowFeed,
    RunFeed,
    ShardContents,
    ShardFeed,
    SpanSource,
    open_sources,
    runs_of,
)
from tokenization_worker.pipelines.tokenize.packed_feed import PackedFeed, PackingRules, count_rows
from tokenization_worker.pipelines.tokenize.shard_files import ShardFiles
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlan
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShuffledShard
from tokenization_worker.storage.base import Entry, Store
from tokenization_worker.storage.open import open_store


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Build one shard.

    `segment_digests` and `slice_files` have one entry per span of the shard: the digest of the segment in
    its range's receipt, and the file of each of the range's slices. `repair`: the existing shard is
    mismatched and may be replaced. `expected`: what the shard must be, where a complete dataset says so. `releasable`:
    as for `TokenizeTask`. `scattered`: of a shuffled shard, the size in bytes of each scattered object of its stream.
    """

    context: RunContext
    shard: ShardPlan | ShuffledShard
    segment_digests: tuple[str, ...]
    slice_files: tuple[tuple[int, ...], ...]
    repair: bool = False
    releasable: tuple[int | ScatterKey, ...] = ()
    scattered: tuple[int, ...] = ()
    expected: ShardSums | None = None

    @property
    def product(self) -> str:
        return self.shard.name.key.words

    @property
    def output_uri(self) -> str:
        return self.context.data.output.uri

    def run(self, worker: WorkerState, on_advance: OnAdvance = ignore_advance) -> ShardReceipt:
        store = open_store(self.output_uri)
        require_same_writers(store.uri, dict(self.context.writers))
        discard_scratch(store, self.context.epoch, self.releasable)
        try:
            return _build_shard(self, store, worker.node)
        except SegmentLost as loss:
            raise ProductLost(loss.range_id, loss.detail, loss.version) from loss
        except ScatterLost as loss:
            assert isinstance(self.shard, ShuffledShard), "no other reads scattered objects"
            raise ProductLost(ScatterKey(self.shard.stream, loss.number), loss.detail, loss.version) from loss


def _build_shard(task: BuildTask, store: Store, node: str) -> ShardReceipt:
    """Write one shard; returns the receipt that counts. Raises `SegmentLost`, `ScatterLost`."""
    started = time.monotonic()
    context, name = task.context, task.shard.name
    work = _ShardWork(task, store)
    files = work.place()
    main = files[0]
    receipt = ShardReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        split=name.split,
        index=name.index,
        shard=name.shard,
        path=main.path,
        tokens=work.contents.tokens,
        documents=work.contents.documents,
        bytes=main.bytes,
        crc32c=main.crc32c,
        sha256=main.sha256,
        documents_sha256=work.sidecar_sha256,
        version=main.version,
        spans=task.shard.spans,
        node=node,
        pid=os.getpid(),
        seconds=round(time.monotonic() - started, 3),
        listed=files if len(files) > 1 else (),
        rows=work.rows,
        group=name.group,
    )
    return create_receipt(store, layout.shard_receipt_path(context.epoch, *name.key), receipt)


def _require_fit(task: BuildTask, stored_tokens: int) -> None:
    """Raise where a shard of packed rows has no row, or more tokens than a format counts."""
    words = f"output.shards.tokens: {task.product} has"
    if not stored_tokens:
        raise SpecError(
            "ShardEmpty",
            f"{words} no document that ends in it: one document has more tokens than a shard",
            next_step="write elsewhere or `tokjob clean` this output, and run a job with larger shards, with a smaller "
            "documents.maxBytes, with output.shuffle, or with longDocuments: Truncate",
        )
    narrow = [name for name in task.context.data.output.formats if name in COUNT_IN_31_BITS]
    if stored_tokens > MOST_IN_31_BITS and narrow:
        raise SpecError(
            "ShardTooLarge",
            f"{words} {stored_tokens:,} tokens, padding included; {narrow[0]} counts up to {MOST_IN_31_BITS:,}",
            next_step="run a new job with smaller shards",
        )


class _ShardWork:
    """Feeds the shard's files, and gives them and their sidecar their names by the rules of epochs."""

    contents: ShardContents

    def __init__(self, task: BuildTask, store: Store) -> None:
        self._task = task
        self._store = store
        self._epoch = task.context.epoch
        name, context = task.shard.name, task.context
        self._documents_path = layout.documents_path(*name.key)
        naming = Naming.of(context.data, context.dtype)
        names = naming.files(split=name.split, index=name.index, shard=name.shard, group=name.group)
        is_packed_here = not isinstance(task.shard, ShuffledShard)
        self._packing = PackingRules.of(context, context.data.output.shard_tokens) if is_packed_here else None
        shape = naming.shape(self._stored_tokens(), name.index)
        self._files = ShardFiles(names, shape)
        self.rows = shape.rows

    def _stored_tokens(self) -> int:
        """Of the shard, padding included."""
        task, rules = self._task, self._packing
        if rules is None:
            return task.shard.stored_tokens
        n_rows = count_rows(self._sources(), rules)
        _require_fit(task, n_rows * rules.row_length)
        return n_rows * rules.row_length

    def place(self) -> tuple[WrittenFile, ...]:
        """The shard's files at their names, its sidecar before them."""
        entries = self._place(
            self._files.paths, self._write, lambda number, found: self._files.is_same(self._store, number, found)
        )
        return self._files.describe(entries)

    def _place(
        self,
        paths: Sequence[str],
        write: Callable[[Sequence[ByteSink]], None],
        is_same: Callable[[int, Entry], bool],
        metadata: Mapping[str, str] | None = None,
    ) -> tuple[Entry, ...]:
        """`create_only.place_files` by the rules of epochs.

        In a later epoch what is there may be a voided writer's, who is about to take it back: it is replaced even
        where it is the same.
        """
        return place_files(
            self._store,
            paths,
            write,
            is_same=lambda number, found: self._epoch == 0 and is_same(number, found),
            allow_replace=self._allow_replace,
            require_current=self._require_current,
            metadata=metadata,
        )

    def _write(self, sinks: Sequence[ByteSink]) -> None:
        feed = self._feed()
        self._files.begin(sinks)
        for tokens, parts in feed.chunks():
            self._files.write(tokens, parts)
        self.contents = feed.finish()
        self._files.finish(self.contents.entries)
        self._require_expected(ShardSums(self._files.sha256, self.sidecar_sha256))
        if self.contents.sidecar is not None:
            self._place_sidecar(self.contents.sidecar)

    @property
    def sidecar_sha256(self) -> str:
        """ "" where there is none."""
        sidecar = self.contents.sidecar
        return "" if sidecar is None else sha256(sidecar).hexdigest()

    def _place_sidecar(self, sidecar: bytes) -> None:
        self._place(
            [self._documents_path],
            lambda sinks: sinks[0].write(sidecar),
            lambda _, found: found.size == len(sidecar) and self._store.read(found.path) == sidecar,
            digest_metadata(sidecar),
        )

    def _require_expected(self, found: ShardSums) -> None:
        """Raise `Disagreement` before anything has its name, if this is not the shard that the dataset has."""
        if self._task.expected not in (None, found):
            name = self._task.shard.name
            raise Disagreement(
                "NotDeterministic",
                f"{self._store.uri}: {name.key.words} was written again and differs from "
                f"{layout.SHARDS_TABLE}; tokjob did not publish it",
                next_step="start the same command again; if this error comes back, report it with the index",
            )

    def _feed(self) -> ShardFeed:
        task, context = self._task, self._task.context
        output = context.data.output
        if isinstance(task.shard, ShuffledShard):
            return self._shuffled_feed(task.shard)
        sources = self._sources()
        if output.sequence is None:
            return RunFeed(sources)
        if self._packing is not None:
            return PackedFeed(sources, self._packing)
        assert context.pad_id is not None, "the plan has resolved it"
        return RowFeed(runs_of(sources), output.sequence.length, context.pad_id, context.numpy_dtype)

    def _sources(self) -> Iterator[SpanSource]:
        task = self._task
        return open_sources(self._store, task.context, task.shard.spans, task.segment_digests, task.slice_files)

    def _shuffled_feed(self, shard: ShuffledShard) -> ShardFeed:
        context = self._task.context
        sequence, shuffle = context.data.output.sequence, context.data.output.shuffle
        assert shuffle is not None, "only then are there such shards"
        units = ShuffledUnits(shard, list(self._cell_readers(shard.stream)), shuffle.seed, self._store.connections)
        if sequence is None:
            return ShuffledRunFeed(units)
        if context.unit_length:
            return ShuffledRowFeed(units, sequence.length)
        assert context.pad_id is not None, "the plan has resolved it"
        runs = shuffled_runs(units, shard.stored_tokens - shard.tokens)
        return RowFeed(runs, sequence.length, context.pad_id, context.numpy_dtype)

    def _cell_readers(self, stream: int) -> Iterator[CellReader]:
        context = self._task.context
        for number, size in enumerate(self._task.scattered):
            path = layout.scattered_path(context.epoch, ScatterKey(stream, number))
            yield CellReader(self._store, path, number, size, context.n_cells, context.unit_length, context.numpy_dtype)

    def _require_current(self) -> None:
        require_current(self._store, self._epoch)

    def _allow_replace(self, path: str) -> None:
        """Return if this build may replace what it found at `path`, the name of a file of its shard."""
        self._require_current()
        if self._epoch == 0 and not self._task.repair:
            raise ChangedError(
                "OutputConflict",
                f"{self._store.uri}/{path} exists and differs from the file that this job writes there for shard "
                f"{self._files.paths[0]}",
                next_step="move it away, or write to another output.uri",
            )
