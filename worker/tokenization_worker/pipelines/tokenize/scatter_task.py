"""The scatter task: the units of a window, sorted by their keys into cells, become one scratch object.

A document belongs to the window that holds its first token. A block of a segment holds whole documents, so the blocks
that overlap the window's spans hold all of its documents. A window of rows holds whole rows. A window of packed rows
is whole blocks, and has the documents that end in it. Memory: the window's tokens, with the padding of rows, and about
100 bytes a part; while rows are packed, the tokens of a block more.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.formats.base import TokenArray
from tokenization_worker.formats.cells import write_cells
from tokenization_worker.formats.segment import Block, SegmentLost
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt, find_receipt
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.receipts import ScatterReceipt
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.feeds import RowFeed, ShardFeed, SpanSource, open_sources, runs_of
from tokenization_worker.pipelines.tokenize.packed_feed import PackedFeed, PackingRules, count_rows
from tokenization_worker.pipelines.tokenize.shard_planner import WindowPlan
from tokenization_worker.sequences.best_fit import largest_block
from tokenization_worker.sequences.order import cells_of
from tokenization_worker.sequences.parts import NO_PARTS, PartArray
from tokenization_worker.sequences.units import Units, parts_of_documents
from tokenization_worker.storage.base import PreconditionFailed, Store
from tokenization_worker.storage.open import open_store


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """Scatter one window. `segment_digests`, `slice_files`: as for `BuildTask`, of the window's spans; `releasable`,
    `again`: as for `TokenizeTask`."""

    context: RunContext
    window: WindowPlan
    segment_digests: tuple[str, ...]
    slice_files: tuple[tuple[int, ...], ...]
    releasable: tuple[int | ScatterKey, ...] = ()
    again: bool = False

    @property
    def product(self) -> str:
        return self.window.key.words

    @property
    def output_uri(self) -> str:
        return self.context.data.output.uri

    def run(self, worker: WorkerState, on_advance: OnAdvance = ignore_advance) -> ScatterReceipt:
        store = open_store(self.output_uri)
        discard_scratch(store, self.context.epoch, self.releasable)
        try:
            return _scatter(self, store, worker.node)
        except SegmentLost as loss:
            raise ProductLost(loss.range_id, loss.detail, loss.version) from loss


def _scatter(task: ScatterTask, store: Store, node: str) -> ScatterReceipt:
    started = time.monotonic()
    context, key = task.context, task.window.key
    path = layout.scatter_receipt_path(context.epoch, key)
    if not task.again:
        found = find_receipt(store, path, ScatterReceipt, context.plan_id)
        if found is not None:  # a concurrent run has done it, and may have deleted the segments of the window
            return found
    shuffle = context.data.output.shuffle
    assert shuffle is not None, "only then are there such tasks"
    units = _read_rows(task, store) if context.unit_length else _read_documents(task, store)
    order, keys = units.sort(shuffle.seed)
    cells = cells_of(keys, context.n_cells)
    del keys
    with store.upload(layout.scattered_path(context.epoch, key), durable=False) as upload:
        written = write_cells(upload, units, order, cells, context.n_cells)
        with suppress(PreconditionFailed):  # another writer's object: its receipt says whether it has the same content
            upload.commit()
    receipt = ScatterReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        stream=key.stream,
        number=key.number,
        units=len(order),
        tokens=len(units.tokens),
        cell_tokens=b64encode(written.tokens.astype("<u4").tobytes()).decode(),
        object_digest=written.digest,
        size=written.size,
        node=node,
        pid=os.getpid(),
        seconds=round(time.monotonic() - started, 3),
    )
    return create_receipt(store, path, receipt)


def _read_rows(task: ScatterTask, store: Store) -> Units:
    """The window's rows, in the order of the source."""
    context, spans = task.context, task.window.spans
    length, dtype = context.unit_length, context.numpy_dtype
    packing = PackingRules.of(context, _whole_blocks(sum(span.end - span.start for span in spans), length))
    feed: ShardFeed
    if packing is not None:
        stored = count_rows(_sources(task, store), packing) * length
        feed = PackedFeed(_sources(task, store), packing)
    else:
        assert context.pad_id is not None, "the plan has resolved it"
        stored = sum(span.stored for span in spans)
        feed = RowFeed(runs_of(_sources(task, store)), length, context.pad_id, dtype)
    tokens = np.empty(stored, dtype)
    parts, size = [NO_PARTS], 0
    for chunk, its_parts in feed.chunks():
        tokens[size : size + len(chunk)] = chunk
        parts.append(its_parts)
        size += len(chunk)
    assert size == len(tokens), "a window of rows is whole rows"
    return Units(tokens, np.full(size // length, length, np.int64), np.concatenate(parts))


def _whole_blocks(tokens: int, row_length: int) -> int:
    """The tokens of all blocks of a window, had the last one been full."""
    block = largest_block(row_length)
    return -(-tokens // block) * block


def _read_documents(task: ScatterTask, store: Store) -> Units:
    """The window's documents, in the order of the source."""
    tokens = np.empty(sum(span.stored for span in task.window.spans), dtype=task.context.numpy_dtype)
    parts, size = [NO_PARTS], 0
    for source in _sources(task, store):
        for block in source.blocks():
            chunk, its_parts = _beginning_in(block, source)
            end = size + len(chunk)
            if end > len(tokens):  # the last document goes on behind the window
                tokens.resize(end, refcheck=False)
            tokens[size:end] = chunk
            parts.append(its_parts)
            size = end
    joined = np.concatenate(parts)
    joined["row"] = np.arange(len(joined))
    return Units(tokens[:size], joined["length"].astype(np.int64), joined)


def _sources(task: ScatterTask, store: Store) -> Iterator[SpanSource]:
    return open_sources(store, task.context, task.window.spans, task.segment_digests, task.slice_files)


def _beginning_in(block: Block, source: SpanSource) -> tuple[TokenArray, PartArray]:
    """The documents of the block that begin in the span, each of one token or more."""
    ends = block.token_start + np.cumsum(block.lengths, dtype=np.int64)
    starts = ends - block.lengths
    chosen = np.flatnonzero((starts >= source.span.start) & (starts < source.span.end) & (block.lengths > 0))
    if not len(chosen):
        return block.tokens[:0], NO_PARTS
    first, end = int(starts[chosen[0]]), int(ends[chosen[-1]])
    files = source.file_of_slice[block.slices[chosen]]
    parts = parts_of_documents(files, block.positions[chosen], block.lengths[chosen])
    return block.tokens[first - block.token_start : end - block.token_start], parts
