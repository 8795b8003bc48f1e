"""Reads one row of a Parquet file by its number, for display."""

from __future__ import annotations

from typing import Any

from tokenization_worker.readers.parquet.file import open_parquet, parquet_row_groups
from tokenization_worker.storage.base import ByteReader


def group_of_row(stream: ByteReader, row: int) -> int:
    """The row group that holds row number `row`, or the number of groups; raises `CorruptFileError`."""
    groups = parquet_row_groups(stream)
    for number, group in enumerate(groups):
        if row < group.rows:
            return number
        row -= group.rows
    return len(groups)


def read_row(stream: ByteReader, row: int, column: str) -> dict[str, Any] | None:
    """Row number `row` as Python values, of this column alone; None where there is no such column or row.

    Read in the thread that asks: one of pyarrow's that still holds the stream when the interpreter ends aborts it.
    Raises `CorruptFileError`.
    """
    with open_parquet(stream, stream.seek(0, 2)) as (file, _):
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                table = file.read_row_group(group, columns=[column], use_threads=False)
                found: dict[str, Any] | None = table.slice(row, 1).to_pylist()[0] if table.num_columns else None
                return found
            row -= rows
    return None
