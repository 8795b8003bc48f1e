"""Reads the usable documents of a source file, counts its records, and gives the documents about a MiB at a time."""

from __future__ import annotations

from collections.abc import Iterator

from tokenization_worker.verification.advance import OnAdvance
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.claimed import FileTask, claimed_records
from tokenization_worker.verification.files.counts import Counts
from tokenization_worker.verification.files.encode import BATCH_BYTES, DOCUMENT_BYTES

Documents = list[tuple[int, str]]
"""Positions and texts, in the order of the file."""


def read_batches(
    facts: Facts, task: FileTask, counts: Counts, on_advance: OnAdvance
) -> Iterator[tuple[int, Documents]]:
    """Documents of one stream at a time, with the stream's number in the file's group; raises `CorruptSource`."""
    waiting: list[Documents] = [[] for _ in range(facts.streams_of_files)]
    size = 0

    def take() -> Iterator[tuple[int, Documents]]:
        for number, documents in enumerate(waiting):
            if documents:
                waiting[number] = []
                yield number, documents

    for record in claimed_records(facts, task.claim, on_advance):
        stream = counts.add(record)
        if stream is None or record.text is None:
            continue
        waiting[stream].append((record.position, record.text))
        size += len(record.text) + DOCUMENT_BYTES
        if size >= BATCH_BYTES:
            yield from take()
            size = 0
    yield from take()
