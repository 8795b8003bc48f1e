"""The rows of a Parquet file for `source`: the text column through pyarrow, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from tokenization_worker.errors import SpecError
from tokenization_worker.readers.documents import FileOutcome, Reason
from tokenization_worker.verification.facts import SourceRules
from tokenization_worker.verification.source import Damaged, Record

if TYPE_CHECKING:
    from tokenization_worker.verification.source import SeekableStream

_ROWS = 16
"""Rows held at once: 16 of the largest documents allowed are 1 GiB."""


def read_rows(stored: BinaryIO, raw: SeekableStream, rules: SourceRules, start: int) -> Iterator[Record]:
    """The rows from `start` on; raises `Damaged`. An error of the store passes through unchanged."""
    pa = _import_pyarrow()
    try:
        file = pa.parquet.ParquetFile(
            pa.PythonFile(stored, mode="r"),
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )
        names = rules.text_field.split(".")
        _require_text(pa, file.schema_arrow, names)
        row = 0
        for group in range(file.metadata.num_row_groups):
            if row + file.metadata.row_group(group).num_rows <= start:
                row += file.metadata.row_group(group).num_rows
                continue
            for value in _values(pa, file, group, names, rules.text_field):
                if row >= start:
                    yield _judge(row, value, rules)
                row += 1
    except (pa.ArrowException, OSError) as error:
        if raw.error is not None:
            raise raw.error from None
        raise Damaged(FileOutcome.CORRUPT_FILE, str(error)) from error


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        step = "in a checkout of this project: pip install '.[parquet]'"
        raise SpecError("SourceInvalid", "the source is Parquet, and pyarrow is missing", next_step=step) from error
    return pyarrow


def _require_text(pa: Any, schema: Any, names: list[str]) -> None:
    type_: Any = None
    fields = schema
    for name in names:
        index = fields.get_field_index(name) if fields is not None else -1
        if index < 0:
            raise Damaged(FileOutcome.SCHEMA_MISMATCH, f"no column {name!r}")
        type_ = fields.field(index).type
        fields = type_ if pa.types.is_struct(type_) else None
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if type_ not in (
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ):
        raise Damaged(FileOutcome.SCHEMA_MISMATCH, f"column {'.'.join(names)!r} is {type_}")


def _values(pa: Any, file: Any, group: int, names: list[str], path: str) -> Iterator[bytes | None]:
    for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group], columns=[path], use_threads=False):
        column = batch.column(batch.schema.get_field_index(names[0]))
        for name in names[1:]:
            column = pa.compute.struct_field(column, [name])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        yield from column.cast(pa.large_binary()).to_pylist()


def _judge(row: int, value: bytes | None, rules: SourceRules) -> Record:
    if value is None:
        return Record(row, row + 1, None, Reason.NULL_TEXT)
    if len(value) > rules.max_document_bytes:
        return Record(row, row + 1, None, Reason.DOCUMENT_TOO_LARGE)
    try:
        return Record(row, row + 1, value.decode())
    except UnicodeDecodeError:
        return Record(row, row + 1, None, Reason.INVALID_UTF8)
