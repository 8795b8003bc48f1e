"""Tokenizes the slices of a range: reads them, drops unusable documents, and passes batches on to be encoded.

Memory is bounded by a batch and by `documents.maxBytes`, never by the file. Verdicts on corrupt files are written where
they are found. `block_writer` encodes; the receipt is written by the task (`range_task`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Protocol

import numpy as np

from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_record
from tokenization_worker.output.ledger.quarantine import QuarantineList, TooManyUnusable
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ranges.block_writer import BlockWriter
from tokenization_worker.pipelines.tokenize.ranges.slice_counts import SliceCounts
from tokenization_worker.planning.groups.shares import is_in_share
from tokenization_worker.planning.planned_source import open_planned, require_corrupt_again
from tokenization_worker.readers.document_batch import (
    CorruptFileError,
    CrashVerdict,
    DocumentBatch,
    FileSlice,
    ReadOptions,
    Reason,
)
from tokenization_worker.readers.exclusions import read_without
from tokenization_worker.readers.resumable_decoder import SetAside
from tokenization_worker.storage.base import Store

BLOCK_BYTES = 1 << 20
"""Small files are encoded together until this much has come together: an engine call costs about 50 us."""

_DOCUMENT_BYTES = 16
"""What a document counts in a block besides its bytes: an empty one takes memory, too, while it is encoded."""


class RangeToTokenize(Protocol):
    """What is to be known of a range; fields as those of `TokenizeTask`."""

    @property
    def context(self) -> RunContext: ...
    @property
    def range_id(self) -> int: ...
    @property
    def dropped(self) -> tuple[tuple[int, str, str], ...]: ...
    @property
    def crash_verdicts(self) -> tuple[tuple[int, CrashVerdict], ...]: ...
    @property
    def room(self) -> int | None: ...
    @property
    def hash_ends(self) -> tuple[int | None, ...]: ...


class RangeTokenizer:
    """Reads slices and has their documents written as blocks.

    Batches of small files wait in `_pending` until a block is worth writing; only files that were read to
    their end wait there. A file larger than a block gets blocks of its own, which are taken back if it
    turns out corrupt. `decoder`: set aside between two ranges of one compressed file; another range costs time only.
    """

    def __init__(
        self,
        task: RangeToTokenize,
        store: Store,
        blocks: BlockWriter,
        quarantine: QuarantineList,
        decoder: SetAside,
        on_advance: OnAdvance = ignore_advance,
    ) -> None:
        context = task.context
        self.source_bytes = 0
        self._waiting_bytes = 0  # source bytes of batches that are read and not encoded
        self._blocks = blocks
        self._segment = blocks.segment
        self._on_advance = on_advance
        self._decoder = decoder
        self._context: RunContext = context
        self._store = store
        self._dropped = {file: (outcome, detail) for file, outcome, detail in task.dropped}
        self._crash_verdicts = task.crash_verdicts
        self._quarantine = quarantine
        self._range_id = task.range_id
        self._room = task.room
        self._hash_ends = task.hash_ends
        self._read = 0
        self._unusable = Counter[str]()  # of the slices that were read to their end
        self._options = ReadOptions.of(context.data)
        self._pending: list[tuple[SliceCounts, DocumentBatch]] = []
        self._pending_size = 0

    def tokenize(self, number: int, source: FileSlice) -> SliceCounts:
        """Read one slice to its end, or drop its file."""
        n_streams = self._segment.n_streams
        if source.file in self._dropped:
            return SliceCounts(number, source, n_streams, *self._dropped[source.file])
        part = SliceCounts(number, source, n_streams)
        hash_end = self._hash_ends[number] if self._hash_ends else None
        part.left_out = None if hash_end is None else 0
        verdicts = {item.position: item for file, item in self._crash_verdicts if file == source.file}
        mark = self._segment.mark()
        quarantine_mark = self._quarantine.mark()
        batches: list[DocumentBatch] = []
        size = 0
        try:
            for batch in read_without(source, self._options, lambda _: open_planned(source), verdicts, self._decoder):
                part.records += batch.records
                self.source_bytes += batch.source_bytes
                self._read += len(batch.texts) + len(batch.rejected)
                part.read_bytes += batch.source_bytes - batch.other_bytes
                rejected = batch.rejected
                batch = replace(batch, rejected=[])  # they are on the list: not to be held
                if hash_end is not None:
                    batch = _take_share(batch, hash_end, part)
                if batch.texts:
                    self._waiting_bytes += batch.source_bytes
                self._report_advance()
                if rejected:
                    self._quarantine.add(number, source, *rejected)
                    part.quarantined.update(str(item.reason) for item in rejected)
                    part.quarantined_bytes += sum(item.bytes for item in rejected)
                    killing = (item for item in rejected if item.reason == Reason.KILLS_WORKER)
                    part.crash_verdicts.extend(verdicts[item.position] for item in killing)
                    self._require_room(part)
                if batch.texts:
                    batches.append(batch)
                    size += batch.source_bytes + _DOCUMENT_BYTES * len(batch.texts)
                if size >= BLOCK_BYTES:
                    if self._pending:
                        self.write_pending()
                        mark = self._segment.mark()
                    self._write([(part, batch) for batch in batches])
                    batches, size = [], 0
        except CorruptFileError as damage:
            self._segment.drop_from(mark)
            self._quarantine.drop_from(quarantine_mark)
            self._waiting_bytes -= sum(batch.source_bytes for batch in batches)
            require_corrupt_again(source, self._options, damage)
            return SliceCounts(number, source, n_streams, *self._record_verdict(source, damage))
        if part.quarantined:
            self._unusable += part.quarantined
        self._pending.extend((part, batch) for batch in batches)
        self._pending_size += size
        if self._pending_size >= BLOCK_BYTES or self._segment.mark() > mark:
            self.write_pending()
        return part

    def _require_room(self, part: SliceCounts) -> None:
        """Raise `TooManyUnusable` where the run cannot end well with what was found; the list of it is written."""
        if self._room is None or self._unusable.total() + part.quarantined.total() <= self._room:
            return
        digest = self._quarantine.store(self._store, self._context.epoch, self._range_id)
        raise TooManyUnusable(self._range_id, digest, self._read, self._unusable + part.quarantined)

    def _record_verdict(self, source: FileSlice, damage: CorruptFileError) -> tuple[str, str]:
        """Write down that the file is corrupt; the first writer's verdict is the one that counts."""
        verdict = {
            "file": source.file,
            "uri": source.uri,
            "outcome": damage.outcome,
            "offset": damage.offset,
            "detail": damage.detail,
        }
        found = create_record(self._store, layout.verdict_path(source.file), verdict)
        return found["outcome"], found["detail"]

    def write_pending(self) -> None:
        if self._pending:
            self._write(self._pending)
            self._pending, self._pending_size = [], 0

    def _write(self, batches: list[tuple[SliceCounts, DocumentBatch]]) -> None:
        self._blocks.write(batches)
        self._waiting_bytes -= sum(batch.source_bytes for _, batch in batches)
        self._report_advance()

    def _report_advance(self) -> None:
        """What is read and waits to be encoded is not done: one document may take minutes."""
        self._on_advance(self.source_bytes - self._waiting_bytes, self._blocks.tokens)


def _take_share(batch: DocumentBatch, hash_end: int, part: SliceCounts) -> DocumentBatch:
    """The batch without the documents that its group's share leaves out, which `part` counts."""
    is_in = np.array([is_in_share(text.encode(), hash_end) for text in batch.texts], dtype=np.bool_)
    texts = [text for text, taken in zip(batch.texts, is_in, strict=True) if taken]
    part.left_out = (part.left_out or 0) + len(batch.texts) - len(texts)
    return replace(batch, texts=texts, positions=batch.positions[is_in], source_bytes=sum(map(len, texts)))
