"""Parquet to documents: the text column only, streamed, whatever the size of a row group.

Invariant: positions are row numbers in the file, so a slice (a run of row groups) takes its first one from the footer.
How a file is opened, and what damage in it raises, is the business of `file`; how much of a column is read at a time
that of `text_column`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from tokenization_worker.readers.batches import BatchBuilder, invalid_utf8, too_large
from tokenization_worker.readers.document_batch import CorruptFileError, DocumentBatch, Reason
from tokenization_worker.readers.parquet.file import load_pyarrow, open_parquet
from tokenization_worker.readers.parquet.find_column import find_text_column
from tokenization_worker.readers.parquet.text_column import SharedTexts, TextColumn, value_ends
from tokenization_worker.storage.base import ByteReader, expect_ranges

_ENOUGH = 8
"""Rows of a head that need no other row group. Some writers put a few rows into each group."""

_HEAD_GROUPS = 8
"""Row groups that a head is read from, at the most: each is a request."""


class ParquetHead(NamedTuple):
    """The first documents of a file, the stored bytes they stand for by their share of all rows, and its columns as
    dotted paths. `warning`: that another column could be meant, or "". `is_whole`: these are all rows."""

    batch: DocumentBatch | None
    stored_bytes: float
    columns: list[str]
    damage: CorruptFileError | None
    warning: str
    is_whole: bool = False


def read_parquet(
    stream: ByteReader, size: int, start: int, end: int, text_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Documents of the row groups [start, end) in batches; `end` -1 is the last one.

    Raises `CorruptFileError` (SchemaMismatch, CorruptFile), or `SpecError` where pyarrow is missing.
    """
    with open_parquet(stream, size) as (file, source):
        found = find_text_column(file.schema_arrow, text_field)
        groups = file.metadata.num_row_groups
        row = sum(file.metadata.row_group(index).num_rows for index in range(min(start, groups)))
        wanted = range(start, groups if end < 0 else min(end, groups))
        text = TextColumn(file, source, found)
        expect_ranges(stream, (text.chunk(index)[:2] for index in wanted))
        batch = BatchBuilder()
        for index in wanted:
            for part in text.parts(index, max_document_bytes):
                row += _add_rows(part, row, max_document_bytes, batch)
                del part  # or its rows would be there beside the next ones
                if batch.is_full:
                    yield batch.take()
        if not batch.is_empty:
            yield batch.take()


def read_parquet_head(
    stream: ByteReader, size: int, text_field: str, max_document_bytes: int, max_bytes: int
) -> ParquetHead:
    """The first documents, about `max_bytes` of text; damage is part of the answer."""
    columns: list[str] = []
    try:
        with open_parquet(stream, size) as (file, source):
            schema = file.metadata.schema
            columns = [schema.column(index).path for index in range(len(schema))]
            found = find_text_column(file.schema_arrow, text_field)
            metadata, batch = file.metadata, BatchBuilder()
            filled = (index for index in range(metadata.num_row_groups) if metadata.row_group(index).num_rows)
            text = TextColumn(file, source, found)
            for group in islice(filled, _HEAD_GROUPS):
                for part in text.parts(group, max_document_bytes, max_rows=64):
                    _add_rows(part, batch.records, max_document_bytes, batch)
                    if batch.source_bytes >= max_bytes or batch.is_full:
                        break
                if batch.records >= _ENOUGH or batch.source_bytes >= max_bytes or batch.is_full:
                    break
            if not batch.records:
                return ParquetHead(None, 0, columns, None, found.warning, is_whole=not metadata.num_rows)
            share = batch.records / max(batch.records, metadata.num_rows)
            return ParquetHead(batch.take(), size * share, columns, None, found.warning, is_whole=share == 1)
    except CorruptFileError as damage:
        return ParquetHead(None, 0, columns, damage, "")


def _add_rows(part: Any, row: int, max_document_bytes: int, batch: BatchBuilder) -> int:
    """Add the rows of a `LargeBinaryArray` or `SharedTexts`, the first of which is row `row`; returns how many."""
    if isinstance(part, SharedTexts):
        n_rows, size = len(part.texts), part.size_bytes
        batch.texts += part.texts
        batch.positions.append(np.arange(row, row + n_rows, dtype=np.int64))
    else:
        ends = value_ends(part)
        n_rows, size = len(part), int(ends[-1] - ends[0])
        if not _add_all(part, row, bool(np.diff(ends).max() <= max_document_bytes), batch):
            data = memoryview(part.buffers()[2] or b"").cast("B")
            _add_each(data, ends.tolist(), part.is_valid().to_pylist(), row, max_document_bytes, batch)
    batch.records += n_rows
    batch.source_bytes += size
    return n_rows


def _add_all(column: Any, row: int, all_fit: bool, batch: BatchBuilder) -> bool:
    """Add all rows if every one of them is a document; otherwise change nothing."""
    if column.null_count or not all_fit:
        return False
    pa = load_pyarrow()
    try:
        texts = column.view(pa.large_string()).to_numpy(zero_copy_only=False).tolist()
    except (UnicodeDecodeError, pa.ArrowException):
        return False
    batch.texts += texts
    batch.positions.append(np.arange(row, row + len(texts), dtype=np.int64))
    return True


def _add_each(
    data: memoryview, ends: list[int], valid: list[bool], row: int, max_document_bytes: int, batch: BatchBuilder
) -> None:
    positions: list[int] = []
    for index, (begin, end) in enumerate(pairwise(ends)):
        value = data[begin:end]
        position, record = row + index, batch.records + index
        if not valid[index]:
            batch.reject(position, record, Reason.NULL_TEXT, "the text is null", b"")
        elif value.nbytes > max_document_bytes:
            detail = too_large(value.nbytes, max_document_bytes)
            batch.reject(position, record, Reason.DOCUMENT_TOO_LARGE, detail, value)
        else:
            try:
                batch.texts.append(str(value, "utf-8"))
                positions.append(position)
            except UnicodeDecodeError as error:
                batch.reject(position, record, Reason.INVALID_UTF8, invalid_utf8(error), value)
    batch.positions.append(np.array(positions, dtype=np.int64))
