"""The tokenize task: one range of the source becomes one segment and one receipt.

The task writes quarantine, segment and receipt itself, in this order: a receipt says that everything before it is
there. How slices become blocks of the segment is left to `range_tokenizer`.

A range that has lost a worker is done in isolation: its documents are encoded in a process of their own. Those that
kill it get their verdicts, and the range is done once more without them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from tokenization_worker.engine.task import WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.formats.segment import SegmentWriter
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt, find_receipt
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.crash_verdicts import read_crash_verdicts
from tokenization_worker.output.ledger.quarantine import QuarantineList
from tokenization_worker.output.ledger.receipts import RangeReceipt, segment_digest
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ranges.block_writer import BlockWriter
from tokenization_worker.pipelines.tokenize.ranges.range_tokenizer import RangeTokenizer
from tokenization_worker.readers.document_batch import CrashVerdict, FileSlice
from tokenization_worker.readers.resumable_decoder import SetAside
from tokenization_worker.storage.base import PreconditionFailed
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.isolation.supervisor import Isolation


@dataclass(frozen=True, slots=True)
class TokenizeTask:
    """Tokenize one range. Files in `dropped` (file, outcome, detail) have a verdict already and are not read; documents
    in `crash_verdicts`, each with its file, have one and are left out. `again`: its receipt is there, and something
    that belongs to it is lost. `releasable`: ranges whose segment, and windows whose scattered object no task needs any
    more: deleted first.

    `isolated`: the range has lost a worker, so that its documents are encoded in a process of their own. `room`: with
    more unusable documents than that the range ends early (`TooManyUnusable`); None: it goes on. `hash_ends`: of each
    slice, below what the hash of a document is that its group's share takes; None: all of them; () where that is so of
    all slices.
    """

    context: RunContext
    range_id: int
    slices: tuple[FileSlice, ...]
    stored_bytes: int
    dropped: tuple[tuple[int, str, str], ...] = ()
    crash_verdicts: tuple[tuple[int, CrashVerdict], ...] = ()
    again: bool = False
    isolated: bool = False
    releasable: tuple[int | ScatterKey, ...] = ()
    room: int | None = None
    hash_ends: tuple[int | None, ...] = ()

    @property
    def product(self) -> str:
        return f"range {self.range_id} ({self.slices[0].uri}{' and more' if len(self.slices) > 1 else ''})"

    @property
    def output_uri(self) -> str:
        return self.context.data.output.uri

    def run(self, worker: WorkerState, on_advance: OnAdvance = ignore_advance) -> RangeReceipt:
        discard_scratch(open_store(self.output_uri), self.context.epoch, self.releasable)
        return _tokenize_range(self, worker, on_advance)


def _tokenize_range(task: TokenizeTask, worker: WorkerState, on_advance: OnAdvance) -> RangeReceipt:
    """Tokenize one range; returns the receipt that counts, which may be another writer's."""
    started = time.monotonic()
    context = task.context
    path = layout.range_receipt_path(context.epoch, task.range_id)
    if not task.again:
        found = find_receipt(open_store(context.data.output.uri), path, RangeReceipt, context.plan_id)
        if found is not None:  # a concurrent run has done it since this one started
            return found
    with ExitStack() as stack:
        isolation = None
        if task.isolated:
            isolation = stack.enter_context(Isolation(context.data, context.engine))
            task = replace(task, crash_verdicts=_known_verdicts(task))
        while True:
            try:
                return _tokenize(task, worker, started, isolation, on_advance)
            except _CrashFound as more:
                task = replace(task, crash_verdicts=(*task.crash_verdicts, *more.crash_verdicts))


class _CrashFound(Exception):
    """Documents of the range turned out to kill what encodes them, and have their verdicts now."""

    def __init__(self, crash_verdicts: list[tuple[int, CrashVerdict]]) -> None:
        super().__init__(crash_verdicts)
        self.crash_verdicts = crash_verdicts


def _known_verdicts(task: TokenizeTask) -> tuple[tuple[int, CrashVerdict], ...]:
    """The verdicts on documents of the task's files, also those that were written since the run began."""
    known = read_crash_verdicts(open_store(task.context.data.output.uri))
    files = sorted({part.file for part in task.slices} & known.keys())
    return tuple((file, item) for file in files for item in known[file])


def _tokenize(
    task: TokenizeTask, worker: WorkerState, started: float, isolation: Isolation | None, on_advance: OnAdvance
) -> RangeReceipt:
    """Tokenize one range once; raises `_CrashFound` after all of it, in isolation, and has written nothing then."""
    context = task.context
    store = open_store(context.data.output.uri)
    segment_path = layout.segment_path(context.epoch, task.range_id)
    with store.upload(segment_path, durable=False) as upload, QuarantineList() as quarantine:
        blocks = BlockWriter(context, store, SegmentWriter(upload, context.streams.count), isolation)
        work = RangeTokenizer(task, store, blocks, quarantine, worker.keep(SetAside), on_advance)
        parts = [work.tokenize(number, source) for number, source in enumerate(task.slices)]
        work.write_pending()
        if blocks.verdicts_found:
            raise _CrashFound(blocks.verdicts_found)
        slices = tuple(part.result() for part in parts)
        digest = segment_digest(slices)
        segment_bytes = blocks.segment.finish(digest)
        with suppress(PreconditionFailed):  # another writer's segment: build compares it with the receipt
            upload.commit()
        quarantine_digest = quarantine.store(store, context.epoch, task.range_id)
    receipt = RangeReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        range_id=task.range_id,
        slices=slices,
        segment_digest=digest,
        segment_bytes=segment_bytes,
        quarantine_digest=quarantine_digest,
        text_bytes=blocks.text_bytes,
        source_bytes=work.source_bytes,
        stored_bytes=task.stored_bytes,
        samples=blocks.samples,
        engine=context.engine,
        node=worker.node,
        pid=os.getpid(),
        seconds=round(time.monotonic() - started, 3),
        versions=blocks.versions,
    )
    return create_receipt(store, layout.range_receipt_path(context.epoch, task.range_id), receipt)
