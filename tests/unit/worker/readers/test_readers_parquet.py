"""Parquet: columns of text of any type, row positions, slices of row groups, and damage."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest

from support.faults.hostile import TEXTS, encrypted_parquet, parquet
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.readers.document_batch import (
    Compression,
    CorruptFileError,
    FileKind,
    FileOutcome,
    FileSlice,
    ReadOptions,
)
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.parquet import page_sizes, text_column
from tokenization_worker.readers.parquet.file import load_pyarrow, parquet_row_groups

KIND = FileKind(SourceFormat.PARQUET, Compression.NONE)


def read(content: bytes, field: str = "text", start: int = 0, end: int = -1, max_bytes: int = 1 << 20) -> tuple:
    """[(row, text)], [(row, record, reason)], records, source_bytes."""
    options = ReadOptions(SourceFormat.AUTO, field, None, max_bytes)
    source = FileSlice(0, "f.parquet", len(content), "", start, end, KIND)
    texts, rejected, records, size = [], [], 0, 0
    for batch in read_documents(source, options, lambda _: io.BytesIO(content)):
        texts += zip(batch.positions.tolist(), batch.texts, strict=True)
        rejected += [(item.position, item.record, item.reason) for item in batch.rejected]
        records += batch.records
        size += batch.source_bytes
    return texts, rejected, records, size


STRINGS = pa.array(TEXTS)
NESTED = pa.array([{"text": text, "lang": "en"} for text in TEXTS])
COLUMNS = {
    "string": (STRINGS, "text", "text"),
    "large string": (STRINGS.cast(pa.large_string()), "text", "text"),
    "string view": (STRINGS.cast(pa.string_view()), "text", "text"),
    "binary": (STRINGS.cast(pa.binary()), "text", "text"),
    "large binary": (STRINGS.cast(pa.large_binary()), "text", "text"),
    "binary view": (STRINGS.cast(pa.binary_view()), "text", "text"),
    "dictionary": (STRINGS.dictionary_encode(), "text", "text"),
    "dictionary of large string": (STRINGS.cast(pa.large_string()).dictionary_encode(), "text", "text"),
    "dictionary of binary": (STRINGS.cast(pa.binary()).dictionary_encode(), "text", "text"),
    "nested": (NESTED, "doc", "doc.text"),
    "nested twice": (pa.array([{"b": item} for item in NESTED.to_pylist()]), "a", "a.b.text"),
}


@pytest.mark.parametrize(("column", "name", "field"), COLUMNS.values(), ids=COLUMNS.keys())
@pytest.mark.parametrize("group", [3, 100], ids=["several groups", "one group"])
def test_every_type_of_text_is_read(column: pa.Array, name: str, field: str, group: int) -> None:
    texts, rejected, records, size = read(parquet(column, name, row_group_size=group), field)
    assert texts == list(enumerate(TEXTS))
    assert (rejected, records, size) == ([], 20, sum(len(text.encode()) for text in TEXTS))


def test_only_the_unusable_rows_are_refused() -> None:
    values = [b"a", None, b"\xff", b"", b"x" * 101, b"\xed\xa0\x80", b"b" * 100]
    texts, rejected, records, _ = read(parquet(pa.array(values, pa.binary()), row_group_size=3), max_bytes=100)
    assert texts == [(0, "a"), (3, ""), (6, "b" * 100)]
    assert rejected == [(1, 1, "NullText"), (2, 2, "InvalidUtf8"), (4, 4, "DocumentTooLarge"), (5, 5, "InvalidUtf8")]
    assert records == 7


def test_a_null_parent_is_a_null_text() -> None:
    column = pa.array([{"text": "a"}, None, {"text": None}, {"text": "b"}])
    texts, rejected, _, _ = read(parquet(column, "doc"), "doc.text")
    assert texts == [(0, "a"), (3, "b")]
    assert [item[2] for item in rejected] == ["NullText", "NullText"]


@pytest.mark.parametrize("rows", [0, 1, 20, 3000])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_rows_of_a_column_without_a_type_are_null_texts(rows: int, use_dictionary: bool) -> None:
    content = parquet(pa.nulls(rows), row_group_size=1000, use_dictionary=use_dictionary)
    expected = [(row, row, "NullText") for row in range(rows)]
    assert read(content) == ([], expected, rows, 0)


def test_a_column_without_a_type_in_a_struct_is_null_texts() -> None:
    column = pa.array([{"text": None}, None], pa.struct([("text", pa.null())]))
    texts, rejected, _, _ = read(parquet(column, "doc"), "doc.text")
    assert (texts, [item[2] for item in rejected]) == ([], ["NullText", "NullText"])


@pytest.mark.parametrize("cuts", [[0, -1], [0, 1, -1], [0, 2, 3, 5, -1], [0, 7, -1], [0, 9, -1]], ids=str)
def test_slices_of_row_groups_hold_the_rows_of_the_whole_file(cuts: list[int]) -> None:
    content = parquet(pa.array([text if n % 6 else None for n, text in enumerate(TEXTS)]), row_group_size=3)
    parts = [read(content, start=start, end=end) for start, end in pairwise(cuts)]
    assert [item for part in parts for item in part[0]] == read(content)[0]
    assert [item[0] for part in parts for item in part[1]] == [0, 6, 12, 18]
    assert sum(part[2] for part in parts) == 20


def test_row_groups_tell_rows_and_stored_bytes() -> None:
    content = parquet(STRINGS, row_group_size=8)
    groups = parquet_row_groups(io.BytesIO(content))
    assert [rows for rows, _ in groups] == [8, 8, 4]
    assert 0 < sum(stored for _, stored in groups) < len(content)


def test_batches_follow_the_size_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sizes, "PAGE_TEXT_BYTES", 1000)
    monkeypatch.setattr(page_sizes, "REPEATED_BYTES", 1000)
    decoded = []
    original = text_column._decode

    def watched(column: pa.Array, *limits: int) -> Iterator[object]:
        decoded.append(len(column))
        return original(column, *limits)

    monkeypatch.setattr(text_column, "_decode", watched)
    content = parquet(pa.array(["x" * 400 + str(n) for n in range(20)]), use_dictionary=False, compression="none")
    assert len(read(content)[0]) == 20
    assert decoded == [1, *[2] * 9, 1]


MISMATCHES = {
    "no column": (STRINGS, "content", "text", "no column 'text'; columns found: id (int64), content (string)"),
    "number": (pa.array(range(20)), "text", "text", "column 'text' is int64, expected string or binary"),
    "list": (pa.array([["x"]] * 20), "text", "text", "column 'text' is list"),
    "struct": (NESTED, "text", "text", "column 'text' is struct"),
    "no field in struct": (NESTED, "doc", "doc.body", "no column 'doc.body'"),
    "below a string": (STRINGS, "text", "text.body", "no column 'text.body'"),
}


@pytest.mark.parametrize(("column", "name", "field", "detail"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_column_that_is_no_text_says_what_was_found(column: pa.Array, name: str, field: str, detail: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        read(parquet(column, name), field)
    assert raised.value.outcome is FileOutcome.SCHEMA_MISMATCH
    assert detail in raised.value.detail


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(encrypted_parquet(["text"]), "column 'text'", id="column"),
        pytest.param(encrypted_parquet(["author", "text", "url"]), "column 'text'", id="columns"),
        pytest.param(encrypted_parquet(["text"], plain_footer=False), "the file", id="footer"),
    ],
)
def test_an_encrypted_file_says_so(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        read(content)
    assert raised.value.outcome is FileOutcome.CORRUPT_FILE
    assert raised.value.detail.startswith(f"Parquet: {what} is encrypted; what to do: write the file again without")


def test_a_text_beside_encrypted_columns_is_read_and_cut() -> None:
    content = encrypted_parquet(["author", "url"])
    assert read(content)[0] == list(enumerate(TEXTS))
    assert read(content, start=1, end=2)[0] == list(enumerate(TEXTS))[7:14]
    groups = parquet_row_groups(io.BytesIO(content))
    assert [rows for rows, _ in groups] == [7, 7, 6]
    assert 0 < sum(stored for _, stored in groups) <= len(content)


def test_errors_of_the_store_are_not_taken_for_damage() -> None:
    class BrokenStore(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionError("the store went away")

    content = parquet(STRINGS)
    options = ReadOptions(SourceFormat.PARQUET, "text", None, 1 << 20)
    with pytest.raises(ConnectionError):
        list(read_documents(FileSlice(0, "f", len(content), "", kind=KIND), options, lambda _: BrokenStore(content)))


def test_without_pyarrow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(STRINGS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    load_pyarrow.cache_clear()
    with pytest.raises(SpecError) as raised:
        read(content)
    assert raised.value.next_step == install_command("parquet")
