"""JSON lines: which lines are documents, why the others are not, and where they stand."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import orjson
import pytest

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers import batches
from tokenization_worker.readers.document_batch import DocumentBatch, FileSlice, ReadOptions
from tokenization_worker.readers.lines import jsonl
from tokenization_worker.readers.open import read_documents


def read(content: bytes, field: str = "text", max_bytes: int = 1 << 20) -> DocumentBatch:
    """All of a file in one batch."""
    found = list(batches_of(content, field, max_bytes))
    return DocumentBatch(
        texts=[text for batch in found for text in batch.texts],
        positions=np.concatenate([batch.positions for batch in found]) if found else np.empty(0, np.int64),
        rejected=[item for batch in found for item in batch.rejected],
        records=sum(batch.records for batch in found),
        source_bytes=sum(batch.source_bytes for batch in found),
    )


def batches_of(content: bytes, field: str = "text", max_bytes: int = 1 << 20) -> Iterator[DocumentBatch]:
    options = ReadOptions(SourceFormat.JSONL, field, None, max_bytes)
    return read_documents(FileSlice(0, "f.jsonl", len(content), ""), options, lambda _: io.BytesIO(content))


REFUSED = {
    "cut": (b'{"text": "x', "text", "InvalidJson", "character 11"),
    "NaN": (b'{"text": NaN}', "text", "InvalidJson", ""),
    "number above a double": (b'{"text": "x", "score": 1e400}', "text", "InvalidJson", "infinity"),
    "array": (b"[1]", "text", "NotAnObject", "an array"),
    "string": (b'"text"', "text", "NotAnObject", "a string"),
    "null record": (b"null", "text", "NotAnObject", "null"),
    "missing": (b'{"id": 1, "body": "x"}', "text", "MissingText", "id, body"),
    "empty object": (b"{}", "text", "MissingText", "none"),
    "null": (b'{"text": null}', "text", "NullText", "'text' is null"),
    "number": (b'{"text": 5}', "text", "WrongTextType", "a number"),
    "boolean": (b'{"text": true}', "text", "WrongTextType", "a boolean"),
    "list": (b'{"text": ["x"]}', "text", "WrongTextType", "an array"),
    "object": (b'{"text": {"text": "x"}}', "text", "WrongTextType", "an object"),
    "nested missing": (b'{"doc": {"body": "x"}}', "doc.text", "MissingText", "'doc.text'; fields found: body"),
    "nested parent missing": (b'{"text": "x"}', "doc.text", "MissingText", "'doc'; fields found: text"),
    "nested parent null": (b'{"doc": null}', "doc.text", "NullText", "'doc' is null"),
    "nested parent a string": (b'{"doc": "x"}', "doc.text", "WrongTextType", "'doc' is a string"),
    "nested parent a list": (b'{"doc": [{"text": "x"}]}', "doc.text", "WrongTextType", "'doc' is an array"),
    "name with a dot null": (b'{"doc.text": null}', "doc.text", "NullText", "'doc.text' is null"),
    "name with a dot a number": (b'{"doc": 1, "doc.text": 5}', "doc.text", "WrongTextType", "'doc.text' is a number"),
    "nested null before a name": (b'{"doc": {"text": null}, "doc.text": "x"}', "doc.text", "NullText", "'doc.text'"),
    "name with a dot below": (b'{"a": {"b.c": "x"}}', "a.b.c", "MissingText", "'a.b'; fields found: b.c"),
}


@pytest.mark.parametrize(("line", "field", "reason", "detail"), REFUSED.values(), ids=REFUSED.keys())
def test_a_line_that_is_no_document_says_why(line: bytes, field: str, reason: str, detail: str) -> None:
    found = read(b"\n" + line + b"\n", field)
    [item] = found.rejected
    assert (item.reason, item.position, item.record, item.excerpt) == (reason, 1, 1, line.decode())
    assert detail in item.detail
    assert not found.texts


def test_a_dot_in_the_field_descends() -> None:
    found = read(orjson.dumps({"a": {"b": {"c": "deep"}}}), "a.b.c")
    assert found.texts == ["deep"]


@pytest.mark.parametrize("length", [20, 3000], ids=["short lines", "long lines"])
def test_a_name_with_a_dot_is_read_where_no_object_has_the_field(length: int) -> None:
    text, other = "x" * length, "y" * length
    records = [
        {"doc.text": text},
        {"doc.text": other, "doc": {"text": text}},
        {"doc.text": text, "doc": {"body": other}},
        {"doc.text": text, "doc": None},
        {"doc.text": text, "doc": other},
        {"doc.text": text, "doc": [other]},
        {"doc": {"text": text}},
    ]
    found = read(b"\n".join(map(orjson.dumps, records)), "doc.text")
    assert (found.texts, found.rejected) == ([text] * len(records), [])


def test_a_text_under_a_name_with_a_dot_has_the_same_limit() -> None:
    assert read(b'{"doc.text": "12345"}', "doc.text", max_bytes=5).texts == ["12345"]
    [item] = read(b'{"doc.text": "12345"}', "doc.text", max_bytes=4).rejected
    assert item.reason == "DocumentTooLarge"


@pytest.mark.parametrize("length", [20, 3000], ids=["short lines", "long lines"])
@pytest.mark.parametrize("bad", [None, 0, 57, 199], ids=["all good", "first bad", "middle bad", "last bad"])
@pytest.mark.parametrize("field", ["text", "doc.text"])
def test_one_bad_line_changes_nothing_for_the_others(length: int, bad: int | None, field: str) -> None:
    texts = [f"{n} " + "é" * length for n in range(200)]
    lines = [orjson.dumps({"text": text, "doc": {"text": text}}) for text in texts]
    expected = list(texts)
    if bad is not None:
        lines[bad] = b'{"text": 5, "doc": {"text": 5}}'
        del expected[bad]
    content = b"\n".join(lines)
    offsets = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])])
    found = read(content, field)
    assert found.texts == expected
    assert found.positions.tolist() == (offsets if bad is None else np.delete(offsets, bad)).tolist()
    assert found.positions.dtype == np.int64
    assert [item.record for item in found.rejected] == ([] if bad is None else [bad])
    assert (found.records, found.source_bytes) == (200, len(content))


def test_a_batch_of_very_short_bad_lines_is_bounded() -> None:
    lines = [b"x"] * 30_000 + [b'{"text": "good"}'] + [b"x"] * 30_000
    found = list(batches_of(b"\n".join(lines)))
    assert max(len(batch.rejected) for batch in found) <= batches.MAX_REJECTED
    whole = read(b"\n".join(lines))
    assert [item.record for item in whole.rejected] == [n for n, line in enumerate(lines) if line == b"x"]
    assert [item.position for item in whole.rejected] == [
        2 * n + 15 * (n > 30_000) for n in range(60_001) if n != 30_000
    ]
    assert (whole.texts, whole.positions.tolist()) == (["good"], [60_000])
    assert (whole.records, whole.source_bytes) == (60_001, len(b"\n".join(lines)))


def test_a_line_that_is_no_utf8_says_which_byte() -> None:
    [item] = read(b'{"text": "caf\xc3\xa9 bad \xff"}\n').rejected
    assert (item.reason, item.detail) == ("InvalidJson", "byte 0xff at byte 20 of the line is not UTF-8")


@pytest.mark.parametrize("text", ["é" * 50, "x" * 100, "\x00" * 100, "🦊" * 25], ids=["é", "x", "NUL", "fox"])
def test_the_size_limit_counts_utf8_bytes_of_text(text: str) -> None:
    line = orjson.dumps({"id": "some id", "text": text})
    assert read(line, max_bytes=100).texts == [text]
    [item] = read(line, max_bytes=99).rejected
    assert (item.reason, item.detail) == (
        "DocumentTooLarge",
        "the text has 100 bytes of UTF-8, documents.maxBytes is 99",
    )


def test_a_large_record_with_a_small_text_is_a_document() -> None:
    line = orjson.dumps({"text": "small", "html": "x" * 60_000})
    assert read(line, max_bytes=10).texts == ["small"]


@pytest.mark.parametrize("line", [b'{"text": "small"' + b" " * 70_000 + b"}", b"x" * 70_000], ids=["json", "not json"])
def test_a_line_over_six_times_the_limit_is_not_even_parsed(line: bytes) -> None:
    [item] = read(line, max_bytes=10).rejected
    assert (item.reason, len(item.excerpt)) == ("DocumentTooLarge", 200)
    assert "the line has" in item.detail


def test_a_batch_holds_some_mib_and_a_huge_document_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(jsonl, "BATCH_BYTES", 10_000)
    small = orjson.dumps({"text": "x" * 1000}) + b"\n"
    huge = orjson.dumps({"text": "y" * 3_000_000}) + b"\n"
    found = list(batches_of(small * 3 + huge + small * 3, max_bytes=4 << 20))
    assert [len(batch.texts) for batch in found] == [3, 1, 3]


def test_blank_lines_count_for_line_numbers_only() -> None:
    found = read(b'\n \t\r\n{"text": "a"}\r\n\n5\n')
    assert (found.texts, found.positions.tolist(), found.records) == (["a"], [5], 5)
    assert [(item.record, item.position) for item in found.rejected] == [(4, 21)]


def test_a_file_of_blank_lines_still_counts_its_records() -> None:
    found = read(b"\n\n\n")
    assert (found.texts, found.records, found.source_bytes) == ([], 3, 3)
