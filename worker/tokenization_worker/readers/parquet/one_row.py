"""Reads one row of a Parquet file by its number, for display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenization_worker.readers.parquet.file import load_pyarrow, open_parquet, parquet_row_groups
from tokenization_worker.storage.base import ByteReader


def group_of_row(stream: ByteReader, row: int) -> int:
    """The row group that holds row number `row`, or the number of groups; raises `CorruptFileError`."""
    groups = parquet_row_groups(stream)
    for number, group in enumerate(groups):
        if row < group.rows:
            return number
        row -= group.rows
    return len(groups)


def read_cell(stream: ByteReader, row: int, field: str) -> str | int | None:
    """The value at `field` (`field_path` has the rule for dots) of row number `row`, for people: an integer, or text.

    Times, decimals and the like are text as pyarrow writes it, bytes are UTF-8 or else hexadecimal. None where there is
    no such row or column, and for any other value. No value raises. Read in the thread that asks: one of pyarrow's that
    still holds the stream when the interpreter ends aborts it. Raises `CorruptFileError`.
    """
    with open_parquet(stream, stream.seek(0, 2)) as (file, _):
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                table = file.read_row_group(group, columns=[field.partition(".")[0], field], use_threads=False)
                return _describe_cell(_find_cell(table, row, field))
            row -= rows
    return None


def _find_cell(table: Any, row: int, field: str) -> Any:
    """The scalar of pyarrow at `field`; None where no column, or more than one, is there."""
    column, *inner = field.split(".")
    for name, path in ((column, inner), (field, [])):
        if table.column_names.count(name) == 1:
            cell = _descend(table.column(name)[row], path)
            if cell is not None:
                return cell
    return None


def _descend(cell: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not load_pyarrow().types.is_struct(cell.type) or cell.type.get_field_index(name) < 0:  # or two have the name
            return None
        cell = cell[name]
    return cell


def _describe_cell(cell: Any) -> str | int | None:
    """What `read_cell` gives of a scalar of pyarrow, which knows no Python value for some times of nanoseconds."""
    pa = load_pyarrow()
    kinds = pa.types
    if isinstance(cell, pa.DictionaryScalar | pa.ExtensionScalar):
        cell = cell.value
    if cell is None or not cell.is_valid:
        return None
    kind = cell.type
    if kinds.is_integer(kind):
        return int(cell.as_py())
    if kinds.is_duration(kind):
        return f"{cell.value} {kind.unit}"
    if kinds.is_large_binary(kind) or kinds.is_binary(kind) or kinds.is_fixed_size_binary(kind):
        return _describe_bytes(cell.as_py())
    if not (kinds.is_temporal(kind) or kinds.is_decimal(kind) or kinds.is_string(kind) or kinds.is_large_string(kind)):
        return None
    try:
        return str(cell.cast(pa.string()).as_py())
    except (pa.ArrowException, UnicodeDecodeError):  # such as a time zone that this machine does not know
        return None


def _describe_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
