"""Reads the documents of a file one by one, each with its number and its record, for display.

The same detection, decoders and parsers as for a run, fed a record at a time, which is slow. What becomes of a record
is decided there; those that are no documents are left out, but count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.document_batch import FileSlice, ReadOptions
from tokenization_worker.readers.lines.record_splitter import Oversized, Run
from tokenization_worker.readers.open import find_content, read_runs, record_separator, runs_of
from tokenization_worker.readers.parquet.one_row import group_of_row
from tokenization_worker.readers.parquet.reader import read_parquet
from tokenization_worker.storage.base import ByteReader


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document of a source file.

    `position`: byte offset of its record in the decompressed file, or row; `number` counts lines (with blank ones),
    texts between separators, or rows, from 1. `line`: of a JSONL file; b"" for any other.
    """

    position: int
    number: int
    text: str
    line: bytes = b""


def read_each(stream: ByteReader, source: FileSlice, options: ReadOptions, start: int = 0) -> Iterator[SourceDocument]:
    """The documents of a whole file from position `start` on, in order; raises as `open.read_documents` does."""
    kind, blocks = find_content(stream, source, options)
    if kind.format is SourceFormat.PARQUET:
        yield from _read_rows(stream, source, options, start)
        return
    is_lines = kind.format is SourceFormat.JSONL
    separator = record_separator(kind.format, options)
    for number, record in enumerate(_one_by_one(runs_of(blocks, source, kind.format, options), separator), 1):
        if record.offset < start:
            continue
        for batch in read_runs(iter((record,)), kind.format, options):
            for text in batch.texts:
                line = bytes(record.data[record.begin : record.end]) if is_lines and isinstance(record, Run) else b""
                yield SourceDocument(record.offset, number, text, line)


def _read_rows(stream: ByteReader, source: FileSlice, options: ReadOptions, start: int) -> Iterator[SourceDocument]:
    group = group_of_row(stream, start)
    stream.seek(0)
    batches = read_parquet(stream, source.size, group, -1, options.text_field, options.max_document_bytes)
    for batch in batches:
        for text, row in zip(batch.texts, batch.positions.tolist(), strict=True):
            if row >= start:
                yield SourceDocument(row, row + 1, text)


def _one_by_one(runs: Iterator[Run | Oversized], separator: bytes | None) -> Iterator[Run | Oversized]:
    """The same records, each as a run of its own."""
    for run in runs:
        if isinstance(run, Oversized) or separator is None:
            yield run
            continue
        begin, offset = run.begin, run.offset
        while begin < run.end:
            at = run.data.find(separator, begin, run.end)
            end = run.end if at < 0 else at + len(separator)
            yield Run(run.data, begin, end, offset, end - begin)
            begin, offset = end, offset + end - begin
