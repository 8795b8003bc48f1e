"""Reads the rows of a Parquet file for `source`: the text column through pyarrow, a few rows at a time.

How many: a row group whose text may be all in one value must not be held many times. Values of a dictionary are taken
out of it one by one, so that a value which stands in a million rows is held twice and not a million times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.readers.document_batch import FileOutcome, Reason
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders.page_sizes import decoded_bytes, dictionary_values
from tokenization_worker.verification.decoders.record import CorruptSource, Record, SeekableStream

_FEW_ROWS = 16
_SMALL_BYTES = 4 << 20
"""Of a row group's pages when they are decoded: `_FEW_ROWS` times as much may be held."""

_LOOKED_AT_BYTES = 4 << 20
"""Stored bytes of pages that are read once more, for what their headers say: the footer may say anything."""

_MANY_BYTES = 64 << 20
"""Of the pages beside a dictionary when they are decoded, where rows are held as pointers into it."""

_POINTERS = 1024
"""Rows held at once that only point to their values."""

_POINTERS_IN = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}
"""Encodings of a column chunk in which rows point into its dictionary."""

_HEADER_BYTES = 64 << 10
"""Of a page's header, at the most."""

_OTHERS_BYTES = 64 << 10
"""Stored bytes of a column chunk beside its dictionary, where that is nearly all: or a third as much as it has."""


def read_rows(stored: BinaryIO, raw: SeekableStream, rules: SourceRules, start: int) -> Iterator[Record]:
    """The rows from `start` on; raises `CorruptSource`. An error of the store passes through unchanged."""
    pa = _import_pyarrow()
    try:
        file = _open(pa, stored)
        names = _text_path(pa, file.schema_arrow, rules.text_field)
        row = 0
        for group in range(file.metadata.num_row_groups):
            if row + file.metadata.row_group(group).num_rows <= start:
                row += file.metadata.row_group(group).num_rows
                continue
            for value in _values(pa, stored, file, group, names):
                if row >= start:
                    yield _judge(row, value, rules)
                row += 1
    except pa.ArrowCapacityError as error:  # more than pyarrow can hold is no damage
        raise MemoryError(str(error)) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a column's name
        if raw.error is not None:
            raise raw.error from None
        if isinstance(error, MemoryError):
            raise
        raise CorruptSource(FileOutcome.CORRUPT_FILE, str(error)) from error


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        step = install_command("parquet")
        raise SpecError("SourceInvalid", "the source is Parquet, and pyarrow is missing", next_step=step) from error
    return pyarrow


def _text_path(pa: Any, schema: Any, text_field: str) -> list[str]:
    """The names that lead to the text: those between dots, or else the whole as one name."""
    names = text_field.split(".")
    found = _look_up(pa, schema, names)
    if (found is None or len(found[0]) < len(names)) and (flat := _look_up(pa, schema, [text_field])):
        found = flat
    if found is None:
        raise CorruptSource(FileOutcome.SCHEMA_MISMATCH, f"no column {text_field!r}")
    names, type_ = found
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if type_ not in (
        pa.null(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ):
        raise CorruptSource(FileOutcome.SCHEMA_MISMATCH, f"column {'.'.join(names)!r} is {type_}")
    return names


def _look_up(pa: Any, schema: Any, names: list[str]) -> tuple[list[str], Any] | None:
    """The names down to a column, and its type; a column of nulls has nothing below it."""
    type_: Any = schema
    for depth, name in enumerate(names):
        if depth and pa.types.is_null(type_):
            return names[:depth], type_
        if depth and not pa.types.is_struct(type_):
            return None
        numbers = type_.get_all_field_indices(name)
        if len(numbers) > 1:
            raise CorruptSource(FileOutcome.SCHEMA_MISMATCH, f"{len(numbers)} columns {name!r}")
        if not numbers:
            return None
        type_ = type_.field(numbers[0]).type
    return names, type_


def _open(pa: Any, stored: BinaryIO, **options: Any) -> Any:
    return pa.parquet.ParquetFile(
        pa.PythonFile(stored, mode="r"),
        buffer_size=1 << 20,
        pre_buffer=False,
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
        **options,
    )


class _Way(NamedTuple):
    """How to read a row group: so many `rows` at once, and whether as pointers into their dictionary. `values`: how
    many the dictionary has, 0 where no row points into one.
    """

    rows: int
    has_pointers: bool
    values: int = 0


def _values(pa: Any, stored: BinaryIO, file: Any, group: int, names: list[str]) -> Iterator[bytes | None]:
    """The values of a row group, of which one is decoded at a time where they stand in a dictionary."""
    way = _way_of(stored, file, group, ".".join(names))
    try:
        yield from _read_values(pa, stored, file, group, names, way)
    except _EqualValues:
        yield from _read_values(pa, stored, file, group, names, _Way(1, has_pointers=False))


class _EqualValues(Exception):
    """pyarrow has dropped values of a kept dictionary that another one equals, and left the pointers as they are."""


def _read_values(
    pa: Any, stored: BinaryIO, file: Any, group: int, names: list[str], way: _Way
) -> Iterator[bytes | None]:
    """Raises `_EqualValues` before the first value, where another way may read them."""
    path, is_begun = ".".join(names), False
    if way.has_pointers:
        file = _open(pa, stored, metadata=file.metadata, read_dictionary=[path])
    for batch in file.iter_batches(batch_size=way.rows, row_groups=[group], columns=[path], use_threads=False):
        column = batch.column(batch.schema.get_field_index(names[0]))
        for name in names[1:]:
            column = pa.compute.struct_field(column, [name])
        if pa.types.is_dictionary(column.type):
            values = column.dictionary.cast(pa.large_binary())
            if len(values) < way.values:
                if way.has_pointers and not is_begun:
                    raise _EqualValues
                raise CorruptSource(FileOutcome.CORRUPT_FILE, "the dictionary of the column has equal values")
            for number in column.indices:
                if number.is_valid and not 0 <= number.as_py() < len(values):  # pyarrow lets that pass
                    raise CorruptSource(FileOutcome.CORRUPT_FILE, "a row points to no value of its dictionary")
                yield values[number.as_py()].as_py() if number.is_valid else None
        else:
            for value in column.cast(pa.large_binary()):
                yield value.as_py()
        is_begun = True
        del batch, column  # not to be held beside the next ones


def _way_of(stored: BinaryIO, file: Any, group: int, path: str) -> _Way:
    """pyarrow ends the process where it is asked for metadata of a column that are damaged or encrypted; a reader that
    is asked for no rows raises an error instead.
    """
    metadata = file.metadata
    found = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path == path]
    if len(found) != 1:  # one name with dots, and a path of the same letters: both are read, and one is used
        return _Way(1, has_pointers=False)
    next(file.reader.iter_batches(0, row_groups=[group], column_indices=found, use_threads=False), None)
    chunk = metadata.row_group(group).column(found[0])
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    end = first + chunk.total_compressed_size
    values = 0
    if chunk.has_dictionary_page and not _POINTERS_IN.isdisjoint(chunk.encodings):
        values = dictionary_values(_read_at(stored, first, min(end, first + _HEADER_BYTES)))
    if chunk.total_uncompressed_size <= _SMALL_BYTES and _decoded(stored, first, end, _SMALL_BYTES):
        return _Way(_FEW_ROWS, has_pointers=False, values=values)
    if not chunk.has_dictionary_page or "DELTA_BYTE_ARRAY" in chunk.encodings:
        return _Way(1, has_pointers=False, values=values)
    dictionary, others = chunk.data_page_offset - first, end - chunk.data_page_offset
    is_mostly_dictionary = others <= dictionary // 3 + _OTHERS_BYTES
    if is_mostly_dictionary and _decoded(stored, chunk.data_page_offset, end, _MANY_BYTES):
        return _Way(_POINTERS, has_pointers=True, values=values)
    return _Way(1, has_pointers=False, values=values)


def _decoded(stored: BinaryIO, begin: int, end: int, most: int) -> bool:
    """Whether the pages at [begin, end) are known to decode to at most so many bytes."""
    if not 0 <= begin <= end <= begin + _LOOKED_AT_BYTES:
        return False
    size = decoded_bytes(_read_at(stored, begin, end))
    return size is not None and size <= most


def _read_at(stored: BinaryIO, begin: int, end: int) -> bytes:
    """The bytes [begin, end), or fewer where the file ends before; none of a place that is in no file."""
    if begin < 0:
        return b""
    stored.seek(begin)
    parts = []
    while begin < end and (part := stored.read(end - begin)):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def _judge(row: int, value: bytes | None, rules: SourceRules) -> Record:
    if value is None:
        return Record(row, row + 1, None, Reason.NULL_TEXT)
    if len(value) > rules.max_document_bytes:
        return Record(row, row + 1, None, Reason.DOCUMENT_TOO_LARGE, size=len(value))
    try:
        return Record(row, row + 1, value.decode(), size=len(value))
    except UnicodeDecodeError:
        return Record(row, row + 1, None, Reason.INVALID_UTF8, size=len(value))
