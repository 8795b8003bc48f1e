"""Parquet to documents: the text column only, streamed, whatever the size of a row group.

The only module that knows pyarrow, which is imported when the first Parquet file is read. Invariant:
positions are row numbers in the file, so a slice (a run of row groups) takes its first one from the footer.
Column chunks are read through a small buffer and a few rows at a time, so memory follows the size of pages.
Not bounded is one page: Parquet decompresses a page whole, and a writer may put any document into it.
Damage in anything that is read raises `DamagedFile`; errors of the store pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tokenization_worker.errors import SpecError
from tokenization_worker.readers.batches import BatchBuilder, invalid_utf8, too_large
from tokenization_worker.readers.documents import DamagedFile, DocumentBatch, FileOutcome, Reason
from tokenization_worker.storage.base import ByteReader, expect_ranges

_BUFFER_BYTES = 1 << 20
"""Stored bytes of a column chunk asked for at a time."""

_BATCH_TEXT_BYTES = 1 << 20
_BATCH_ROWS = 512
"""Rows decoded at once: as many as make `_BATCH_TEXT_BYTES` on average, never more than `_BATCH_ROWS`,
because the average says little where a few documents are large."""

_DICTIONARY_BATCH_BYTES = 64 << 20
"""The same for a column of dictionary type, of which pyarrow copies the whole dictionary into every batch."""


class RowGroup(NamedTuple):
    """What a cut has to know of a row group: its rows, and the stored bytes of all its columns."""

    rows: int
    stored_bytes: int


class ParquetHead(NamedTuple):
    """The first documents of a file, the stored bytes they stand for, and its columns as dotted paths."""

    batch: DocumentBatch | None
    stored_bytes: int
    columns: list[str]
    damage: DamagedFile | None


def parquet_row_groups(stream: ByteReader) -> list[RowGroup]:
    """The row groups of a file from its footer; raises `DamagedFile`."""
    with _open_parquet(stream, stream.seek(0, 2)) as file:
        return [_row_group(file, index) for index in range(file.metadata.num_row_groups)]


def read_parquet(
    stream: ByteReader, size: int, start: int, end: int, text_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Documents of the row groups [start, end) in batches; `end` -1 is the last one.

    Raises `DamagedFile` (SchemaMismatch, CorruptFile), or `SpecError` where pyarrow is missing.
    """
    path = tuple(text_field.split("."))
    with _open_parquet(stream, size) as file:
        _check_column(file.schema_arrow, path)
        groups = file.metadata.num_row_groups
        row = sum(file.metadata.row_group(index).num_rows for index in range(min(start, groups)))
        wanted = range(start, groups if end < 0 else min(end, groups))
        expect_ranges(stream, _text_chunks(file, wanted, path))
        batch = BatchBuilder()
        for index in wanted:
            for column in _text_columns(file, index, path):
                _add_rows(column, row, max_document_bytes, batch)
                row += len(column)
                if batch.is_full:
                    yield batch.take()
        if not batch.is_empty:
            yield batch.take()


def read_parquet_head(
    stream: ByteReader, size: int, text_field: str, max_document_bytes: int, max_bytes: int
) -> ParquetHead:
    """The first documents, about `max_bytes` of text; damage is part of the answer."""
    path = tuple(text_field.split("."))
    columns: list[str] = []
    try:
        with _open_parquet(stream, size) as file:
            schema = file.metadata.schema
            columns = [schema.column(index).path for index in range(len(schema))]
            _check_column(file.schema_arrow, path)
            if file.metadata.num_row_groups == 0:
                return ParquetHead(None, 0, columns, None)
            batch = BatchBuilder()
            for column in _text_columns(file, 0, path, max_rows=64):
                _add_rows(column, batch.records, max_document_bytes, batch)
                if batch.source_bytes >= max_bytes:
                    break
            group = _row_group(file, 0)
            stored_bytes = group.stored_bytes * batch.records // max(1, group.rows)
            return ParquetHead(batch.take(), stored_bytes, columns, None)
    except DamagedFile as damage:
        return ParquetHead(None, 0, columns, damage)


@cache
def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise SpecError(
            "SourceInvalid",
            "a source file is Parquet, and pyarrow is not installed",
            next_step="in a checkout of this project: pip install '.[parquet]'",
        ) from error
    pa: Any = pyarrow
    pa.set_memory_pool(pa.system_memory_pool())
    return pa


class _SizedFile:
    """The stream as pyarrow wants files: whole reads, a known size, and the store's own error kept."""

    def __init__(self, stream: ByteReader, size: int) -> None:
        self._stream = stream
        self._stream_position = -1
        self._size = size
        self._position = 0
        self.closed = False
        self.error: BaseException | None = None
        self.taken = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        missing = self._size - self._position if size < 0 else size
        parts = []
        try:
            if self._stream_position != self._position:
                self._stream.seek(self._position)
            while missing > 0 and (part := self._stream.read(missing)):
                parts.append(part)
                missing -= len(part)
        except BaseException as error:
            self.error = error
            raise
        data = b"".join(parts)
        self._position += len(data)
        self._stream_position = self.taken = self._position
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@contextmanager
def _open_parquet(stream: ByteReader, size: int) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; what it complains about in the block becomes `DamagedFile`."""
    pa = _pyarrow()
    source = _SizedFile(stream, size)
    try:
        with pa.parquet.ParquetFile(
            pa.PythonFile(source, mode="r"),
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        ) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        if source.error is not None:
            raise source.error from None
        if isinstance(error, MemoryError):  # says more about this machine than about the file
            raise
        detail = f"Parquet: {error}"
        raise DamagedFile(FileOutcome.CORRUPT_FILE, source.taken, detail) from error


def _row_group(file: Any, index: int) -> RowGroup:
    group = file.metadata.row_group(index)
    stored = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
    return RowGroup(group.num_rows, stored)


def _check_column(schema: Any, path: tuple[str, ...]) -> None:
    """Raise `DamagedFile(SchemaMismatch)` unless `path` leads to a column of text."""
    types = _pyarrow().types
    fields = type_ = schema
    for depth, name in enumerate(path):
        index = fields.get_field_index(name) if fields is not None else -1
        if index < 0:
            raise _mismatch(f"no column {'.'.join(path[: depth + 1])!r}", schema)
        type_ = fields.field(index).type
        fields = type_ if types.is_struct(type_) else None
    value_type = type_.value_type if types.is_dictionary(type_) else type_
    text_types = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    if not any(is_text(value_type) for is_text in text_types):
        raise _mismatch(f"column {'.'.join(path)!r} is {type_}, expected string or binary", schema)


def _mismatch(what: str, schema: Any) -> DamagedFile:
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    return DamagedFile(FileOutcome.SCHEMA_MISMATCH, None, f"{what}; columns found: {columns or 'none'}")


def _text_columns(file: Any, group: int, path: tuple[str, ...], max_rows: int = _BATCH_ROWS) -> Iterator[Any]:
    """The text of a row group, a few rows at a time, as `pyarrow.LargeBinaryArray`."""
    pa = _pyarrow()
    type_: Any = file.schema_arrow.field(path[0]).type
    for name in path[1:]:
        type_ = type_.field(name).type
    if pa.types.is_dictionary(type_):
        rows = _rows_at_once(file.metadata.row_group(group), path, _DICTIONARY_BATCH_BYTES)
    else:
        rows = min(max_rows, _rows_at_once(file.metadata.row_group(group), path, _BATCH_TEXT_BYTES))
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=[".".join(path)], use_threads=False):
        column = batch.column(batch.schema.get_field_index(path[0]))
        if len(path) > 1:
            column = pa.compute.struct_field(column, list(path[1:]))
        if not pa.types.is_dictionary(column.type):
            yield column.cast(pa.large_binary())
            continue
        for begin in range(0, len(column), max_rows):
            yield column.slice(begin, max_rows).dictionary_decode().cast(pa.large_binary())


def _text_chunks(file: Any, groups: range, path: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Where the text's column chunks lie in the file."""
    for group in map(file.metadata.row_group, groups):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema == ".".join(path):
                offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
                first = min(filter(None, offsets), default=0)
                yield first, first + chunk.total_compressed_size


def _rows_at_once(group: Any, path: tuple[str, ...], batch_bytes: int) -> int:
    columns = [group.column(index) for index in range(group.num_columns)]
    text_bytes: int = sum(c.total_uncompressed_size for c in columns if c.path_in_schema == ".".join(path))
    rows: int = group.num_rows
    return max(1, batch_bytes * rows // max(1, text_bytes))


def _add_rows(column: Any, row: int, max_document_bytes: int, batch: BatchBuilder) -> None:
    """Add the rows of a `LargeBinaryArray`; `row` is the row number of its first one."""
    n_rows = len(column)
    if not n_rows:
        return
    _, offsets, values = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + n_rows + 1]
    if not _add_all(column, row, bool(np.diff(ends).max() <= max_document_bytes), batch):
        data = memoryview(values or b"").cast("B")
        valid = column.is_valid().to_pylist()
        _add_each(data, ends.tolist(), valid, row, max_document_bytes, batch)
    batch.records += n_rows
    batch.source_bytes += int(ends[-1] - ends[0])


def _add_all(column: Any, row: int, all_fit: bool, batch: BatchBuilder) -> bool:
    """Add all rows if every one of them is a document; otherwise change nothing."""
    if column.null_count or not all_fit:
        return False
    pa = _pyarrow()
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
