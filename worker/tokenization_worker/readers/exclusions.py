"""Moves excluded documents from a slice's texts to its refused records, in order.

Costs nothing for batches that hold none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tokenization_worker.readers.document_batch import (
    EXCERPT_CHARACTERS,
    CrashVerdict,
    DocumentBatch,
    FileSlice,
    ReadOptions,
    Reason,
    Rejected,
)
from tokenization_worker.readers.open import OpenSource, read_documents
from tokenization_worker.readers.resumable_decoder import SetAside


def read_without(
    source: FileSlice,
    options: ReadOptions,
    open_source: OpenSource,
    crash_verdicts: Mapping[int, CrashVerdict],
    aside: SetAside | None = None,
) -> Iterator[DocumentBatch]:
    """`read_documents`, with the documents at the positions of `crash_verdicts` refused as `KillsWorker`."""

    def count_before(end: int) -> tuple[int, int]:
        """Records, and bytes of documents, of the slice before the one at `end`, which is never a row."""
        batches = list(map(_counts, read_documents(replace(source, end=end), options, open_source)))
        return sum(records for records, _ in batches), sum(size for _, size in batches)

    positions = np.array(sorted(crash_verdicts), dtype=np.int64)
    records = 0
    for batch in read_documents(source, options, open_source, aside):
        found = np.flatnonzero(np.isin(batch.positions, positions)).tolist()
        yield _refuse(batch, found, records, crash_verdicts, count_before) if found else batch
        records += batch.records


def _counts(batch: DocumentBatch) -> tuple[int, int]:
    """Records, and bytes of documents; a batch is not to be held for them."""
    return batch.records, batch.source_bytes - batch.other_bytes


def _refuse(
    batch: DocumentBatch,
    found: list[int],
    records_before: int,
    crash_verdicts: Mapping[int, CrashVerdict],
    count_before: Callable[[int], tuple[int, int]],
) -> DocumentBatch:
    """The batch with its texts of numbers `found` among the refused; `records_before` are of the batches before."""
    rejected = list(batch.rejected)
    for number in found:
        position = int(batch.positions[number])
        text = batch.texts[number]
        if batch.has_lines:  # blank ones among them, and each with more bytes than its text
            record, bytes_before = count_before(position)
            size = count_before(position + 1)[1] - bytes_before
        else:
            record = records_before + number + sum(item.position < position for item in batch.rejected)
            size = len(text.encode())
        excerpt = text[:EXCERPT_CHARACTERS]
        rejected.append(Rejected(position, record, Reason.KILLS_WORKER, crash_verdicts[position].detail, excerpt, size))
    left_out = set(found)
    return replace(
        batch,
        texts=[text for number, text in enumerate(batch.texts) if number not in left_out],
        positions=np.delete(batch.positions, found),
        rejected=sorted(rejected, key=lambda item: item.position),
    )
