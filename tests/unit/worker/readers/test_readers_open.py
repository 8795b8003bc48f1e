"""Streams are closed whatever happens, and ids and heads of files come out as promised."""

from __future__ import annotations

import gzip
import io
import os
from collections import Counter

import orjson
import pyarrow as pa
import pytest

from support.faults.hostile import TEXTS, documents, hostile_files, jsonl, parquet
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome, FileSlice, ReadOptions
from tokenization_worker.readers.head import read_head
from tokenization_worker.readers.identity import read_id
from tokenization_worker.readers.lines.oversized_lines import smallest_text_bytes
from tokenization_worker.readers.open import read_documents

OPTIONS = ReadOptions(SourceFormat.AUTO, "text", None, 64 << 20)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "broken.jsonl.gz", "unknown"])
def test_the_stream_is_closed_at_the_end_on_damage_and_when_dropped(name: str) -> None:
    plain = documents(TEXTS)
    content = {
        "a.jsonl": plain,
        "a.jsonl.gz": gzip.compress(plain),
        "a.parquet": parquet(pa.array(TEXTS)),
        "broken.jsonl.gz": gzip.compress(plain)[:-1],
        "unknown": b"no format",
    }[name]
    for stop_early in (False, True):
        stream = io.BytesIO(content)
        found = read_documents(FileSlice(0, name, len(content), ""), OPTIONS, lambda _, stream=stream: stream)
        try:
            for _ in found:
                if stop_early:
                    break
        except (CorruptFileError, SpecError):
            pass
        found.close()
        assert stream.closed


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"id": "a/b\n"}, "a/b\n"),
        ({"id": ""}, ""),
        ({"id": 7}, "7"),
        ({"id": -(2**63)}, "-9223372036854775808"),
        ({"id": 2**64 - 1}, "18446744073709551615"),
        ({"id": 2**64}, "u@5"),
        ({"id": True}, "u@5"),
        ({"id": 1.5}, "u@5"),
        ({"id": None}, "u@5"),
        ({"id": ["x"]}, "u@5"),
        ({}, "u@5"),
        (None, "u@5"),
    ],
    ids=repr,
)
def test_an_id_is_text_or_an_integer_or_the_place(record: object, shown: str) -> None:
    assert read_id(record, "id", "u", 5) == shown


def test_a_dot_in_the_id_field_descends() -> None:
    assert read_id({"meta": {"id": 3}}, "meta.id", "u", 5) == "3"
    assert read_id({"meta": "x"}, "meta.id", "u", 5) == "u@5"


def head_of(content: bytes, name: str, max_bytes: int = 4096, options: ReadOptions = OPTIONS):
    return read_head(name, len(content), options, max_bytes, lambda _: io.BytesIO(content))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_a_head_tells_how_many_bytes_its_documents_stand_for(pack) -> None:
    texts = [os.urandom(300).hex() for _ in range(20_000)]
    content = pack(documents(texts))
    sample = head_of(content, "a.jsonl", 256 << 10)
    assert sample.texts == texts[: len(sample.texts)]
    assert 250 << 10 < sample.source_bytes < 2 << 20
    estimate = len(content) * sample.source_bytes / sample.stored_bytes
    assert estimate == pytest.approx(len(documents(texts)), rel=0.1)
    assert (sample.rejected, sample.damage, sample.fields) == (Counter(), None, ["id", "text"])


def test_a_head_of_a_small_file_is_all_of_it() -> None:
    content = documents(TEXTS)[:-1]
    sample = head_of(content, "a.jsonl", 1 << 20)
    assert (sample.texts, sample.source_bytes, sample.stored_bytes) == (TEXTS, len(content), len(content))


def test_a_head_reads_on_for_a_first_document_larger_than_it() -> None:
    content = documents(["x" * 50_000, "y" * 5_000_000])
    assert [len(text) for text in head_of(content, "a.jsonl").texts] == [50_000]


def test_a_head_names_the_fields_found() -> None:
    content = jsonl({"id": 1, "doc": {"body": "x"}}, {"url": "u"}, b"broken")
    sample = head_of(content, "a.jsonl")
    assert sample.fields == ["id", "doc", "doc.body", "url"]
    assert sample.rejected == {"MissingText": 2, "InvalidJson": 1}


def test_a_head_of_parquet_stands_for_all_columns() -> None:
    content = parquet(pa.array(TEXTS * 50), use_dictionary=False)
    sample = head_of(content, "a.parquet", 10_000)
    assert sample.texts == (TEXTS * 50)[: len(sample.texts)]
    total = sum(len(text.encode()) for text in TEXTS * 50)
    assert len(content) * sample.source_bytes / sample.stored_bytes == pytest.approx(total, rel=0.2)
    assert sample.fields == ["id", "text"]


def test_a_head_of_text_is_whole_documents() -> None:
    options = ReadOptions(SourceFormat.TEXT, "text", b"<>", 64 << 20)
    assert head_of(b"one<>two<>" + b"x" * 3_000_000, "a.txt", 4096, options).texts == ["one", "two"]
    assert head_of(b"a whole file", "a.txt").texts == ["a whole file"]


@pytest.mark.parametrize("file", hostile_files(), ids=lambda file: file.id)
def test_the_head_of_a_hostile_file_never_fails(file) -> None:
    sample = head_of(file.content, file.name, 1 << 20)
    if file.outcome in (FileOutcome.EMPTY_FILE, FileOutcome.WRONG_ENCODING, FileOutcome.SCHEMA_MISMATCH):
        assert sample.damage is not None
        assert sample.damage.outcome == file.outcome
    if file.outcome == FileOutcome.READ and sample.damage is None:
        assert len(sample.texts) <= file.documents


LONG = 'é\n"' * 100
GIANTS = {
    "text too large": ({"id": "x", "text": LONG}, "text", True),
    "other field too large": ({"html": LONG, "text": "small"}, "text", False),
    "both too large": ({"html": LONG, "text": LONG}, "text", True),
    "nested": ({"doc": {"text": LONG}}, "doc.text", True),
    "text missing": ({"html": LONG}, "text", False),
    "text not a string": ({"html": LONG, "text": [LONG]}, "text", False),
    "text says what is put in its place": ({"html": LONG, "text": "left out 0"}, "text", False),
}


@pytest.mark.parametrize(("record", "field", "too_large"), GIANTS.values(), ids=GIANTS.keys())
def test_a_giant_text_is_told_without_parsing_it(record: object, field: str, too_large: bool) -> None:
    line = orjson.dumps(record)
    found = smallest_text_bytes(b"before" + line + b"\nafter", 6, 6 + len(line), tuple(field.split(".")), 30)
    if too_large:
        assert found is not None
        assert 30 < found <= len(LONG.encode())
    else:
        assert found is None


def test_a_giant_line_that_is_not_json_is_left_to_the_parser() -> None:
    line = b'{"text": "' + b"x" * 500 + b'", }'
    assert smallest_text_bytes(line, 0, len(line), ("text",), 30) is None
