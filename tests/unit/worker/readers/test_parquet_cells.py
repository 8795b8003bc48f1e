"""The id of a row of Parquet, which is text for people, whatever the type of its column."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenization_worker.readers.parquet.one_row import read_cell

NANOSECONDS = 1_700_000_000_123_456_789


def cell(column: pa.Array, field: str = "id", row: int = 0) -> str | int | None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": column}), sink)
    return read_cell(io.BytesIO(sink.getvalue()), row, field)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.timestamp("ns"), NANOSECONDS, "2023-11-14 22:13:20.123456789"),
        (pa.timestamp("ns", "UTC"), NANOSECONDS, "2023-11-14 22:13:20.123456789Z"),
        (pa.timestamp("ms"), 0, "1970-01-01 00:00:00.000"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.time32("s"), 1, "00:00:01.000"),
        (pa.duration("ns"), 1, "1 ns"),
        (pa.date32(), 0, "1970-01-01"),
        (pa.decimal128(38, 2), 123, "123.00"),
        (pa.int64(), -1, -1),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.string(), "ä", "ä"),
        (pa.large_string(), "a", "a"),
        (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
        (pa.binary(), b"abc", "abc"),
        (pa.binary(), b"\xff\x00", "ff00"),
        (pa.large_binary(), b"\n", "0a"),
        (pa.binary(2), b"\x01\x23", "0123"),
        (pa.bool_(), True, None),
        (pa.float64(), 1.5, None),
        (pa.list_(pa.int64()), [1], None),
        (pa.struct([("a", pa.int64())]), {"a": 1}, None),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], None),
        (pa.null(), None, None),
        (pa.timestamp("ns"), None, None),
        (pa.string(), None, None),
    ],
    ids=str,
)
def test_an_id_of_any_type_is_read_for_people(kind: pa.DataType, value: Any, shown: str | int | None) -> None:
    assert cell(pa.array([value], kind)) == shown


@pytest.mark.parametrize(
    ("field", "shown"), [("id.a", 7), ("id.when", "00:00:00.000000001"), ("id.b", None), ("id.a.b", None)]
)
def test_a_dot_descends_into_a_struct(field: str, shown: str | int | None) -> None:
    kind = pa.struct([("a", pa.int64()), ("when", pa.time64("ns"))])
    column = pa.array([{"a": 7, "when": 1}, None], kind)
    assert cell(column, field) == shown
    assert cell(column, field, row=1) is None


def test_two_fields_of_one_name_are_no_id() -> None:
    column = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    assert cell(column, "id.a") is None


def test_text_that_is_not_utf8_is_no_id() -> None:
    column = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    assert cell(column) is None


def test_a_column_or_row_that_is_not_there_is_no_id() -> None:
    assert cell(pa.array([1]), "other") is None
    assert cell(pa.array([1]), row=1) is None
