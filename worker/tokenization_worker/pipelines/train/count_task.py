"""The count task: the pieces of one range of the source become one scratch object and one receipt.

A corrupt file is left out as a whole: the range is counted once more without it. Memory is bounded by the table of
pieces, which is written when it is full, and by `documents.maxBytes`.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tokenization_worker.engine.task import WorkerState
from tokenization_worker.engine.task_progress import OnAdvance, ignore_advance
from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt, find_receipt
from tokenization_worker.pipelines.train.counts_object import CountsWriter
from tokenization_worker.pipelines.train.holdout import HeldOut, Holdout, hash_of
from tokenization_worker.pipelines.train.receipts import CountReceipt, DroppedFile
from tokenization_worker.planning.groups.shares import is_in_share
from tokenization_worker.planning.planned_source import open_planned, require_corrupt_again
from tokenization_worker.readers.document_batch import CorruptFileError, DocumentBatch, FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.resumable_decoder import SetAside
from tokenization_worker.storage.base import PreconditionFailed, Upload
from tokenization_worker.storage.open import open_store
from tokenization_worker.training.patterns import PatternFails, PieceCounter, library_version, pattern_fails

TABLE_BYTES = 128 << 20
"""A table of more is written, and a new one begun: 3 million pieces of mixed text; while it is written a worker holds
it four times."""


@dataclass(frozen=True, slots=True)
class CountContext:
    """What all ranges of a training have in common. `is_compiled`: a splitter of ours cuts the pieces. `library`: which
    the pieces are of, with its version."""

    output_uri: str
    plan_id: str
    options: ReadOptions
    pattern: str
    regex: str | None
    special_tokens: tuple[str, ...]
    holdout_end: int
    is_compiled: bool
    library: str
    table_bytes: int = TABLE_BYTES


@dataclass(frozen=True, slots=True)
class CountTask:
    """Count one range. `groups`: the group of each slice; `hash_ends`: below what the hash of a document is that the
    group's share takes, None: all of them. `again`: its receipt is there, and its scratch is lost.
    """

    context: CountContext
    range_id: int
    slices: tuple[FileSlice, ...]
    groups: tuple[str, ...]
    hash_ends: tuple[int | None, ...]
    stored_bytes: int
    again: bool = False

    @property
    def product(self) -> str:
        return f"range {self.range_id} ({self.slices[0].uri}{' and more' if len(self.slices) > 1 else ''})"

    @property
    def output_uri(self) -> str:
        return self.context.output_uri

    def run(self, worker: WorkerState, on_advance: OnAdvance = ignore_advance) -> CountReceipt:
        started = time.monotonic()
        require_same_library(self.context.library, library_version())
        store = open_store(self.output_uri)
        path = layout.counted_receipt_path(self.range_id)
        if not self.again:
            found = find_receipt(store, path, CountReceipt, self.context.plan_id)
            if found is not None:  # a concurrent run has counted it since this one started
                return found
        dropped: dict[int, DroppedFile] = {}
        counts_path, held_out_path = layout.training_scratch(self.range_id)
        while True:
            with store.upload(counts_path, durable=False) as upload:
                work = _RangeCounter(self, CountsWriter(upload), worker.keep(SetAside), on_advance)
                try:
                    for number, source in enumerate(self.slices):
                        if source.file not in dropped:
                            work.count_slice(number, source)
                except _FileDropped as damage:
                    dropped[damage.file.file] = damage.file
                    continue
                work.finish()
                _create_scratch(store.upload(held_out_path, durable=False), work.holdout.lines())
                with suppress(PreconditionFailed):  # another writer's object of the same range
                    upload.commit()
            break
        sums = work.sums
        receipt = CountReceipt(
            plan_id=self.context.plan_id,
            range_id=self.range_id,
            documents=sums["documents"],
            held_out=work.holdout.documents,
            left_out=sums["left_out"],
            quarantined=dict(sorted(work.quarantined.items())),
            read_bytes=sums["read_bytes"],
            quarantined_bytes=sums["quarantined_bytes"],
            text_bytes=sums["text_bytes"],
            source_bytes=sums["source_bytes"],
            stored_bytes=self.stored_bytes,
            pieces=work.pieces,
            distinct=work.distinct,
            dropped=tuple(dropped.values()),
            first_unusable=work.first_unusable,
            node=worker.node,
            pid=os.getpid(),
            seconds=round(time.monotonic() - started, 3),
        )
        return create_receipt(store, path, receipt)


def require_same_library(planned: str, found: str) -> None:
    """Raise where this process has another version of the library than the training began with: it may know other
    characters."""
    if planned != found:
        raise ChangedError(
            "TokenizerChanged",
            f"the training began with {planned}, and here is {found}, which may cut text into other pieces",
            next_step="install the version that it began with, or train at another output.uri",
        )


def _create_scratch(upload: Upload, data: bytes) -> None:
    with upload, suppress(PreconditionFailed):
        upload.write(data)
        upload.commit()


class _FileDropped(Exception):
    """A file of the range is corrupt."""

    def __init__(self, file: DroppedFile) -> None:
        super().__init__(file)
        self.file = file


class _RangeCounter:
    """Counts the slices of one range, and what becomes of their documents. `distinct`: pieces of the largest table."""

    def __init__(self, task: CountTask, writer: CountsWriter, decoder: SetAside, on_advance: OnAdvance) -> None:
        context = task.context
        self.holdout = Holdout()
        self.sums = Counter[str]()
        self.quarantined = Counter[str]()
        self.first_unusable = ""
        self.distinct = 0
        self._task = task
        self._context = context
        self._writer = writer
        self._decoder = decoder
        self._on_advance = on_advance
        self._counter = PieceCounter(context.pattern, context.regex, is_compiled=context.is_compiled)
        self._specials = special_splitter(context.special_tokens)

    @property
    def pieces(self) -> int:
        """Pieces in all tables."""
        return self._writer.pieces

    def count_slice(self, number: int, source: FileSlice) -> None:
        """Count the documents of one slice; raises `_FileDropped` for a corrupt file."""
        options = self._context.options
        try:
            for batch in read_documents(source, options, lambda _: open_planned(source), self._decoder):
                self._take(number, source, batch)
        except CorruptFileError as damage:
            require_corrupt_again(source, options, damage)
            raise _FileDropped(DroppedFile(source.file, damage.outcome, damage.detail)) from damage

    def finish(self) -> None:
        """Write what is left."""
        self._write()
        self._writer.finish()

    def _write(self) -> None:
        pieces = self._counter.take()
        self.distinct = max(self.distinct, len(pieces))
        self._writer.write(pieces)

    def _take(self, number: int, source: FileSlice, batch: DocumentBatch) -> None:
        sums = self.sums
        sums["source_bytes"] += batch.source_bytes
        sums["read_bytes"] += batch.source_bytes - batch.other_bytes
        for item in batch.rejected:
            self.quarantined[str(item.reason)] += 1
            sums["quarantined_bytes"] += item.bytes
            words = f"{source.uri} @ {item.position:,}, {item.reason}: {item.detail}"
            self.first_unusable = self.first_unusable or words
        texts = list(self._choose(number, batch.texts))
        sums["documents"] += len(texts)
        sums["text_bytes"] += sum(map(len, texts))
        try:
            self._counter.count(self._specials(texts))
        except PatternFails as fails:
            raise pattern_fails(f"a document of {source.uri}", fails) from fails
        if self._counter.size_bytes > self._context.table_bytes:
            self._write()
        self._on_advance(sums["source_bytes"], 0)

    def _choose(self, number: int, texts: Sequence[str]) -> Iterator[bytes]:
        """The documents that are counted, in UTF-8: in their group's share, and not held out."""
        hash_end, group = self._task.hash_ends[number], self._task.groups[number]
        holdout_end = self._context.holdout_end
        for text in texts:
            data = text.encode()
            if hash_end is not None and not is_in_share(data, hash_end):
                self.sums["left_out"] += 1
            elif holdout_end and (hashed := hash_of(data)) < holdout_end:
                self.holdout.add([HeldOut(hashed, text, group)])
            else:
                yield data


def special_splitter(special_tokens: Sequence[str]) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Cuts special tokens out of texts in UTF-8, of two that begin together the longer one: pieces end there."""
    longest_first = sorted((token.encode() for token in special_tokens), key=len, reverse=True)
    pattern = re.compile(b"|".join(map(re.escape, longest_first)))

    def split(texts: Sequence[bytes]) -> list[bytes]:
        parts: list[bytes] = []
        for text in texts:
            if any(token in text for token in longest_first):
                parts.extend(part for part in pattern.split(text) if part)
            else:
                parts.append(text)
        return parts

    return split
