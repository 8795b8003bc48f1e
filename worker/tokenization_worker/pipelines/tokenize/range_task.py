"""The tokenize task: one range of the source becomes one segment and one receipt.

The task writes quarantine, segment and receipt itself, in this order: a receipt says that everything before it is
there. How slices become blocks of the segment is the business of `range_work`.

A range that has lost a worker is done in isolation: its documents are encoded in a process of their own. Those that
kill it get their verdicts, and the range is done once more without them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

from tokenization_worker.engine.task_progress import Tell, untold
from tokenization_worker.formats.segment import SegmentWriter
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt, find_receipt
from tokenization_worker.output.ledger.crash_verdicts import read_poison
from tokenization_worker.output.ledger.quarantine import QuarantineList
from tokenization_worker.output.ledger.receipts import RangeReceipt, segment_digest
from tokenization_worker.pipelines.tokenize.range_tokenizer import RangeWork
from tokenization_worker.pipelines.tokenize.tasks import TokenizeTask
from tokenization_worker.readers.document_batch import Poison
from tokenization_worker.storage.base import PreconditionFailed
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.isolation.supervisor import Isolation


def tokenize_range(task: TokenizeTask, node: str, tell: Tell = untold) -> RangeReceipt:
    """Tokenize one range; returns the receipt that counts, which may be another writer's.

    `tell` hears how far it is.
    """
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
            task = replace(task, poison=_known_poison(task))
        while True:
            try:
                return _tokenize(task, node, started, isolation, tell)
            except _PoisonFound as more:
                task = replace(task, poison=(*task.poison, *more.poison))


class _PoisonFound(Exception):
    """Documents of the range turned out to kill what encodes them, and have their verdicts now."""

    def __init__(self, poison: list[tuple[int, Poison]]) -> None:
        super().__init__(poison)
        self.poison = poison


def _known_poison(task: TokenizeTask) -> tuple[tuple[int, Poison], ...]:
    """The verdicts on documents of the task's files, also those that were written since the run began."""
    known = read_poison(open_store(task.context.data.output.uri))
    files = sorted({part.file for part in task.slices} & known.keys())
    return tuple((file, item) for file in files for item in known[file])


def _tokenize(task: TokenizeTask, node: str, started: float, isolation: Isolation | None, tell: Tell) -> RangeReceipt:
    """Tokenize one range once; raises `_PoisonFound` after all of it, in isolation, and has written nothing then."""
    context = task.context
    store = open_store(context.data.output.uri)
    segment_path = layout.segment_path(context.epoch, task.range_id)
    with store.upload(segment_path, durable=False) as upload, QuarantineList() as quarantine:
        work = RangeWork(task, store, SegmentWriter(upload, context.streams.count), quarantine, isolation, tell)
        parts = [work.tokenize(number, source) for number, source in enumerate(task.slices)]
        work.write_pending()
        if work.poison_found:
            raise _PoisonFound(work.poison_found)
        slices = tuple(part.result() for part in parts)
        digest = segment_digest(slices)
        segment_bytes = work.segment.finish(digest)
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
        text_bytes=work.text_bytes,
        source_bytes=work.source_bytes,
        stored_bytes=task.stored_bytes,
        samples=work.samples,
        engine=context.engine,
        node=node,
        pid=os.getpid(),
        seconds=round(time.monotonic() - started, 3),
        versions=work.versions,
    )
    return create_receipt(store, layout.range_receipt_path(context.epoch, task.range_id), receipt)
