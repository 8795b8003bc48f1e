"""Parquet to documents: the text column only, streamed, whatever the size of a row group.

The only module that knows pyarrow, which is imported when the first Parquet file is read. Invariant:
positions are row numbers in the file, so a slice (a run of row groups) takes its first one from the footer.
Column chunks are read through a small buffer and a few rows at a time, as many as `page_sizes` allows, so memory
follows the size of pages, and not of what they repeat.
Not bounded is one page: Parquet decompresses a page whole, and a writer may put any document into it.
Damage in anything that is read raises `DamagedFile`; errors of the store pass through unchanged. That there is more
than pyarrow or this machine can hold is no damage: it raises `MemoryError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.readers.batches import BatchBuilder, invalid_utf8, too_large
from tokenization_worker.readers.detection.text_fields import did_you_mean
from tokenization_worker.readers.document_batch import DamagedFile, DocumentBatch, FileOutcome, Reason
from tokenization_worker.readers.parquet.page_sizes import MOST_ROWS, POINTERS_AT_ONCE, REPEATED_BYTES, Chunk, PageWalk
from tokenization_worker.storage.base import ByteReader, expect_ranges

_BUFFER_BYTES = 1 << 20
"""Stored bytes of a column chunk asked for at a time."""

_PART_BYTES = 1 << 20
"""Of text that is handed on at once."""


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
    with open_parquet(stream, stream.seek(0, 2)) as (file, _):
        return [_row_group(file, index) for index in range(file.metadata.num_row_groups)]


def read_parquet(
    stream: ByteReader, size: int, start: int, end: int, text_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Documents of the row groups [start, end) in batches; `end` -1 is the last one.

    Raises `DamagedFile` (SchemaMismatch, CorruptFile), or `SpecError` where pyarrow is missing.
    """
    path = tuple(text_field.split("."))
    with open_parquet(stream, size) as (file, source):
        _check_column(file.schema_arrow, path)
        groups = file.metadata.num_row_groups
        row = sum(file.metadata.row_group(index).num_rows for index in range(min(start, groups)))
        wanted = range(start, groups if end < 0 else min(end, groups))
        text = _TextColumn(file, source, path)
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
    path = tuple(text_field.split("."))
    columns: list[str] = []
    try:
        with open_parquet(stream, size) as (file, source):
            schema = file.metadata.schema
            columns = [schema.column(index).path for index in range(len(schema))]
            _check_column(file.schema_arrow, path)
            if file.metadata.num_row_groups == 0:
                return ParquetHead(None, 0, columns, None)
            batch = BatchBuilder()
            for part in _TextColumn(file, source, path).parts(0, max_document_bytes, max_rows=64):
                _add_rows(part, batch.records, max_document_bytes, batch)
                if batch.source_bytes >= max_bytes or batch.is_full:
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
            next_step=install_command("parquet"),
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
        self.pages: PageWalk | None = None

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
        if self.pages is not None:
            self.pages.feed(self._position, data)
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
def open_parquet(stream: ByteReader, size: int) -> Iterator[tuple[Any, _SizedFile]]:
    """A `pyarrow.parquet.ParquetFile` and what it reads; what it complains about in the block becomes `DamagedFile`."""
    pa = _pyarrow()
    source = _SizedFile(stream, size)
    try:
        with _parquet_file(source) as file:
            yield file, source
    except pa.ArrowCapacityError as error:
        raise MemoryError(f"Parquet: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        if source.error is not None:
            raise source.error from None
        if isinstance(error, MemoryError):  # says more about this machine than about the file
            raise
        detail = f"Parquet: {error}"
        raise DamagedFile(FileOutcome.CORRUPT_FILE, source.taken, detail) from error


def _parquet_file(source: _SizedFile, **options: Any) -> Any:
    pa = _pyarrow()
    return pa.parquet.ParquetFile(
        pa.PythonFile(source, mode="r"),
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
        **options,
    )


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


_TEXT_TYPES = ("string", "large_string", "string_view")


def _mismatch(what: str, schema: Any) -> DamagedFile:
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    texts = [field.name for field in schema if str(field.type) in _TEXT_TYPES and "." not in field.name]
    hint = f"; {did_you_mean(texts)}" if texts else ""
    return DamagedFile(FileOutcome.SCHEMA_MISMATCH, None, f"{what}; columns found: {columns or 'none'}{hint}")


class _TextColumn:
    """The text column of a file, a row group at a time, each batch as large as its pages allow."""

    def __init__(self, file: Any, source: _SizedFile, path: tuple[str, ...]) -> None:
        self._file = file
        self._source = source
        self._path = path
        self._name = ".".join(path)
        type_: Any = file.schema_arrow.field(path[0]).type
        for name in path[1:]:
            type_ = type_.field(name).type
        self._is_dictionary = _pyarrow().types.is_dictionary(type_)
        self._dictionary_file: Any = None

    def chunk(self, group: int) -> Chunk:
        """Where the column's pages of a row group are."""
        metadata = self._file.metadata.row_group(group)
        for column in map(metadata.column, range(metadata.num_columns)):
            if column.path_in_schema == self._name:
                first = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
                return Chunk(
                    first,
                    first + column.total_compressed_size,
                    column.data_page_offset - first,
                    column.encodings,
                    column.num_values,
                )
        return Chunk(0, 0, 0, ())

    def parts(self, group: int, max_document_bytes: int, max_rows: int = MOST_ROWS) -> Iterator[Any]:
        """The rows of a row group as `pyarrow.LargeBinaryArray` or `_Texts`, some MiB or one row at a time."""
        pa = _pyarrow()
        chunk = self.chunk(group)
        keeps_dictionary = self._is_dictionary or chunk.is_mostly_dictionary
        file = self._with_dictionary() if keeps_dictionary else self._file
        walk = PageWalk(chunk, keeps_dictionary=keeps_dictionary)
        most = POINTERS_AT_ONCE if keeps_dictionary else max_rows
        self._source.pages = walk
        row = 0
        batches = file.iter_batches(
            batch_size=walk.rows_at_once(0, most), row_groups=[group], columns=[self._name], use_threads=False
        )
        for batch in batches:
            column = batch.column(batch.schema.get_field_index(self._path[0]))
            if len(self._path) > 1:
                column = pa.compute.struct_field(column, list(self._path[1:]))
            yield from _decode(column, max_document_bytes, max_rows)
            row += len(batch)
            del batch, column  # or they would be there beside the next ones
            file.reader.set_batch_size(walk.rows_at_once(row, most))

    def _with_dictionary(self) -> Any:
        """The file, opened once more so that its values stay in dictionaries."""
        if self._is_dictionary:
            return self._file
        if self._dictionary_file is None:
            options = {"metadata": self._file.metadata, "read_dictionary": [self._name]}
            self._dictionary_file = _parquet_file(self._source, **options)
        return self._dictionary_file


class _Texts(NamedTuple):
    """Rows that all are documents; those that point to one value share it. `size_bytes` are of UTF-8."""

    texts: list[str]
    size_bytes: int


def _decode(column: Any, max_document_bytes: int, max_rows: int) -> Iterator[Any]:
    """The values of a column in parts of at most `_PART_BYTES` and `max_rows`, but at least one row each."""
    pa = _pyarrow()
    if not len(column):
        return
    is_dictionary = pa.types.is_dictionary(column.type)
    if not is_dictionary:
        column = column.cast(pa.large_binary())
    repeats = is_dictionary and len(column) > len(column.dictionary)  # else its values are more than its rows
    values = _shared_texts(column, max_document_bytes) if repeats else None
    ends = np.cumsum(_pointed_sizes(column), dtype=np.int64) if is_dictionary else _ends(column)[1:]
    before = 0 if is_dictionary else int(_ends(column)[0])
    begin = 0
    while begin < len(column):
        fitting = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        end = min(max(fitting, begin + 1), begin + max_rows, len(column))
        part = column.slice(begin, end - begin)
        if values is not None:
            yield _Texts(values[part.indices.to_numpy()].tolist(), int(ends[end - 1]) - before)
        else:
            yield part.dictionary_decode().cast(pa.large_binary()) if is_dictionary else part
        before, begin = int(ends[end - 1]), end


def _shared_texts(column: Any, max_document_bytes: int) -> Any:
    """The values of a dictionary array, object[n_values], where all are documents and their texts are not too much to
    hold; else None."""
    pa = _pyarrow()
    values = column.dictionary.cast(pa.large_binary())
    if column.null_count or not len(values) or values.null_count:
        return None
    ends = _ends(values)
    if ends[-1] - ends[0] > REPEATED_BYTES or np.diff(ends).max() > max_document_bytes:
        return None
    try:
        return values.view(pa.large_string()).to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, pa.ArrowException):
        return None


def _ends(column: Any) -> Any:
    """Where the rows of a `LargeBinaryArray` of at least one row begin and end, int64[n_rows + 1]."""
    return np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]


def _pointed_sizes(column: Any) -> Any:
    """Bytes that each row of a dictionary array has when it is decoded, int64[n_rows]; of a null any number."""
    pa = _pyarrow()
    if not len(column.dictionary):
        return np.zeros(len(column), dtype=np.int64)
    sizes = pa.compute.binary_length(column.dictionary.cast(pa.large_binary())).fill_null(0).to_numpy()
    return sizes[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]


def _add_rows(part: Any, row: int, max_document_bytes: int, batch: BatchBuilder) -> int:
    """Add the rows of a `LargeBinaryArray` or `_Texts`, the first of which has the number `row`; returns how many."""
    if isinstance(part, _Texts):
        n_rows, size = len(part.texts), part.size_bytes
        batch.texts += part.texts
        batch.positions.append(np.arange(row, row + n_rows, dtype=np.int64))
    else:
        ends = _ends(part)
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
