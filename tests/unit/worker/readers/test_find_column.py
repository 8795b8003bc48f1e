"""The text column of a Parquet schema: a path, a name with dots, a name that stands twice, and its number."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome
from tokenization_worker.readers.parquet.find_column import find_text_column, leaf_paths

TEXT = pa.string()
FLAT = pa.field("page.text", TEXT)
NESTED = pa.field("page", pa.struct([("text", TEXT)]))
READ_NESTED = "'text' inside 'page', which is read"

FOUND = {
    "flat": ([FLAT], ("page.text",), 0, ""),
    "nested": ([NESTED], ("page", "text"), 0, ""),
    "flat first": ([FLAT, NESTED], ("page", "text"), 1, READ_NESTED),
    "nested first": ([NESTED, FLAT], ("page", "text"), 0, READ_NESTED),
    "struct without it": ([pa.field("page", pa.struct([("url", TEXT)])), FLAT], ("page.text",), 1, ""),
    "text at the struct's name": ([pa.field("page", TEXT), FLAT], ("page.text",), 1, ""),
    "nulls at the struct's name": ([pa.field("page", pa.null()), FLAT], ("page.text",), 1, ""),
    "nulls alone": ([pa.field("page", pa.null())], ("page",), 0, ""),
    "a name of another that stands twice": ([pa.field("id", TEXT), pa.field("id", TEXT), FLAT], ("page.text",), 2, ""),
}


@pytest.mark.parametrize(("fields", "path", "number", "warning"), FOUND.values(), ids=FOUND.keys())
def test_the_column_of_a_path_is_found(
    fields: list[pa.Field], path: tuple[str, ...], number: int, warning: str
) -> None:
    found = find_text_column(pa.schema(fields), "page.text")
    assert (found.path, found.number) == (path, number)
    assert warning in found.warning
    assert bool(found.warning) == bool(warning)


TWICE = {
    "a name": ([pa.field("text", TEXT)] * 2, "text", "2 columns are called 'text'"),
    "a name with a dot": ([FLAT, FLAT], "page.text", "2 columns are called 'page.text'"),
    "a struct": ([NESTED, NESTED], "page.text", "2 columns are called 'page'"),
    "in a struct": (
        [pa.field("doc", pa.struct([("text", TEXT), ("text", TEXT), ("text", TEXT)]))],
        "doc.text",
        "3 columns are called 'doc.text'",
    ),
}


@pytest.mark.parametrize(("fields", "text_field", "words"), TWICE.values(), ids=TWICE.keys())
def test_a_name_of_two_columns_is_refused_with_what_to_do(fields: list[pa.Field], text_field: str, words: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        find_text_column(pa.schema([*fields, pa.field("url", TEXT)]), text_field)
    assert raised.value.outcome is FileOutcome.SCHEMA_MISMATCH
    assert words in raised.value.detail
    assert "write the file again with another name" in raised.value.detail
    assert raised.value.detail.endswith("did you mean source.textField: url?")


def test_columns_are_numbered_as_row_groups_do() -> None:
    values = {
        "list": pa.array([[1]], pa.list_(pa.int64())),
        "map": pa.array(
            [[("a", {"x": "1", "y": ["2"]})]], pa.map_(TEXT, pa.struct([("x", TEXT), ("y", pa.list_(TEXT))]))
        ),
        "large": pa.array([[["z"]]], pa.large_list(pa.list_(TEXT))),
        "dictionary": pa.array(["a"]).dictionary_encode(),
        "fixed": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
        "none": pa.nulls(1),
        "struct": pa.array([{"a": {"b": 1, "c": "x"}, "d": [{"e": 1}]}]),
        "text": pa.array(["t"]),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(values), sink)
    file = pq.ParquetFile(sink)
    group = file.metadata.row_group(0)
    paths = list(leaf_paths(file.schema_arrow))
    assert len(paths) == group.num_columns
    assert group.column(paths.index(("text",))).path_in_schema == "text"
    assert group.column(paths.index(("struct", "a", "c"))).path_in_schema == "struct.a.c"
