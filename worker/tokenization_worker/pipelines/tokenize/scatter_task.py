"""The scatter task: the documents of a window, sorted by their keys into cells, become one scratch object.

A document belongs to the window that holds its first token. A block of a segment holds whole documents, so the blocks
that overlap the window's spans hold all of its documents. Memory: the window's tokens, and 32 bytes a document.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.formats.cells import Units, write_cells
from tokenization_worker.formats.segment import Block, SegmentLost
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.receipts import ScatterReceipt
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.feeds import SpanSource, open_sources
from tokenization_worker.pipelines.tokenize.shard_planner import WindowPlan
from tokenization_worker.sequences.order import cells_of, keys_of, sort_units
from tokenization_worker.storage.base import PreconditionFailed, Store
from tokenization_worker.storage.open import open_store


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """Scatter one window. `segment_digests`, `slice_files`: as for `BuildTask`, of the window's spans; `releasable`: as
    for `TokenizeTask`."""

    context: RunContext
    window: WindowPlan
    segment_digests: tuple[str, ...]
    slice_files: tuple[tuple[int, ...], ...]
    releasable: tuple[int | ScatterKey, ...] = ()

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
    shuffle = context.data.output.shuffle
    assert shuffle is not None, "only then are there such tasks"
    units = _read_units(task, store)
    keys = keys_of(shuffle.seed, units.files, units.positions)
    order = sort_units(keys, units.files, units.positions)
    cells = cells_of(keys[order], context.n_cells)
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
    return create_receipt(store, layout.scatter_receipt_path(context.epoch, key), receipt)


def _read_units(task: ScatterTask, store: Store) -> Units:
    """The window's documents, in the order of the source."""
    room = sum(span.end - span.start for span in task.window.spans)
    tokens = np.empty(room, dtype=task.context.numpy_dtype)
    none = Units(tokens[:0], np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.int64))
    parts, size = [none], 0
    for source in open_sources(store, task.context, task.window.spans, task.segment_digests, task.slice_files):
        for block in source.blocks():
            units = _beginning_in(block, source)
            end = size + len(units.tokens)
            if end > len(tokens):  # the last document goes on behind the window
                tokens = np.concatenate([tokens[:size], np.empty(end - size, tokens.dtype)])
            tokens[size:end] = units.tokens
            parts.append(units._replace(tokens=tokens[:0]))
            size = end
    joined = Units.join(parts)
    return joined._replace(tokens=tokens[:size])


def _beginning_in(block: Block, source: SpanSource) -> Units:
    """The documents of the block that begin in the span, each of one token or more."""
    ends = block.token_start + np.cumsum(block.lengths, dtype=np.int64)
    starts = ends - block.lengths
    chosen = np.flatnonzero((starts >= source.span.start) & (starts < source.span.end) & (block.lengths > 0))
    if not len(chosen):
        return Units(block.tokens[:0], block.lengths[:0], np.empty(0, np.uint32), block.positions[:0])
    first, end = int(starts[chosen[0]]), int(ends[chosen[-1]])
    files = source.file_of_slice[block.slices[chosen]].astype(np.uint32)
    tokens = block.tokens[first - block.token_start : end - block.token_start]
    return Units(tokens, block.lengths[chosen], files, block.positions[chosen])
