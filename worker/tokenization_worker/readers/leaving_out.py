"""Documents that are to be left out: moved from a slice's texts to its refused records, where they stand.

Costs nothing for batches that hold none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tokenization_worker.readers.content import SetAside
from tokenization_worker.readers.documents import (
    EXCERPT_CHARACTERS,
    DocumentBatch,
    FileSlice,
    Poison,
    ReadOptions,
    Reason,
    Rejected,
)
from tokenization_worker.readers.open import OpenSource, read_documents


def read_without(
    source: FileSlice,
    options: ReadOptions,
    open_source: OpenSource,
    poison: Mapping[int, Poison],
    aside: SetAside | None = None,
) -> Iterator[DocumentBatch]:
    """`read_documents`, with the documents at the positions of `poison` refused as `KillsWorker`."""

    def count_records(end: int) -> int:
        """Records of the slice before the one at `end`; only lines of text have blank ones, so it is no row."""
        part = replace(source, end=end)
        return sum(batch.records for batch in read_documents(part, options, open_source))

    positions = np.array(sorted(poison), dtype=np.int64)
    records = 0
    for batch in read_documents(source, options, open_source, aside):
        found = np.flatnonzero(np.isin(batch.positions, positions)).tolist()
        yield _refuse(batch, found, records, poison, count_records) if found else batch
        records += batch.records


def _refuse(
    batch: DocumentBatch,
    found: list[int],
    records_before: int,
    poison: Mapping[int, Poison],
    count_records: Callable[[int], int],
) -> DocumentBatch:
    """The batch with its texts of numbers `found` among the refused; `records_before` are of the batches before."""
    rejected = list(batch.rejected)
    has_blanks = batch.records > len(batch.texts) + len(rejected)
    for number in found:
        position = int(batch.positions[number])
        if has_blanks:
            record = count_records(position)
        else:
            record = records_before + number + sum(item.position < position for item in batch.rejected)
        excerpt = batch.texts[number][:EXCERPT_CHARACTERS]
        rejected.append(Rejected(position, record, Reason.KILLS_WORKER, poison[position].detail, excerpt))
    left_out = set(found)
    return replace(
        batch,
        texts=[text for number, text in enumerate(batch.texts) if number not in left_out],
        positions=np.delete(batch.positions, found),
        rejected=sorted(rejected, key=lambda item: item.position),
    )
