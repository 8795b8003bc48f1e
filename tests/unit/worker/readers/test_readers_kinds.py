"""Which kind a file is: magic bytes, then suffix, then its first character."""

from __future__ import annotations

import gzip
import io
import random

import pytest

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.detection.detect import detect_kind, kind_of_source
from tokenization_worker.readers.document_batch import Compression, CorruptFileError, FileKind, FileOutcome

AUTO, JSONL, PARQUET, TEXT = SourceFormat.AUTO, SourceFormat.JSONL, SourceFormat.PARQUET, SourceFormat.TEXT
NONE, GZIP, ZSTD = Compression.NONE, Compression.GZIP, Compression.ZSTD
LINE = b'{"text": "x"}\n'
BIG = b"".join(b'{"text": "%d"}\n' % n for n in range(100_000))

KINDS = {
    "suffix jsonl": (b"anything", "a.jsonl", AUTO, JSONL, NONE),
    "suffix ndjson": (b"anything", "a.NDJSON", AUTO, JSONL, NONE),
    "suffix json": (b"[]", "a.json", AUTO, JSONL, NONE),
    "suffix txt": (LINE, "a.txt", AUTO, TEXT, NONE),
    "suffix md": (b"# x", "gs://b/a.md", AUTO, TEXT, NONE),
    "suffix below gz": (gzip.compress(b"x"), "a.txt.gz", AUTO, TEXT, GZIP),
    "suffix below zst": (zstd.compress(b"x"), "a.jsonl.zst", AUTO, JSONL, ZSTD),
    "suffix below zstd": (zstd.compress(LINE), "a.md.zstd", AUTO, TEXT, ZSTD),
    "suffix below gz of a plain file": (b"x", "a.txt.gz", AUTO, TEXT, NONE),
    "brace": (LINE, "part-0", AUTO, JSONL, NONE),
    "blanks and brace": (b" \r\n\t" + LINE, "part-0", AUTO, JSONL, NONE),
    "mark and brace": (b"\xef\xbb\xbf" + LINE, "part-0", AUTO, JSONL, NONE),
    "brace inside gzip": (gzip.compress(LINE), "part-0.gz", AUTO, JSONL, GZIP),
    "brace inside the head of zstd": (zstd.compress(BIG)[:2000], "part-0", AUTO, JSONL, ZSTD),
    "brace inside the head of gzip": (gzip.compress(BIG)[:2000], "part-0", AUTO, JSONL, GZIP),
    "Parquet magic wins over suffix": (b"PAR1...", "a.jsonl", AUTO, PARQUET, NONE),
    "Parquet suffix with JSON lines": (LINE, "a.parquet", AUTO, JSONL, NONE),
    "format wins over magic": (b"PAR1...", "a.txt", TEXT, TEXT, NONE),
    "format wins over suffix": (LINE, "a.jsonl", TEXT, TEXT, NONE),
    "format with compression": (gzip.compress(LINE), "a", TEXT, TEXT, GZIP),
    "format Parquet": (b"????", "a", PARQUET, PARQUET, NONE),
    "nothing": (b"", "part-0", AUTO, JSONL, NONE),
    "nothing in text": (b"", "a.txt", AUTO, TEXT, NONE),
    "nothing inside gzip": (gzip.compress(b""), "part-0.gz", AUTO, JSONL, GZIP),
    "skippable frames of all numbers": (b"\x5f\x2a\x4d\x18" + bytes(4), "a.txt", AUTO, TEXT, ZSTD),
    "not a skippable frame": (b"\x60\x2a\x4d\x18" + bytes(4), "a.txt", AUTO, TEXT, NONE),
}


@pytest.mark.parametrize(("head", "uri", "asked", "format", "compression"), KINDS.values(), ids=KINDS.keys())
def test_kind_is_found(
    head: bytes, uri: str, asked: SourceFormat, format: SourceFormat, compression: Compression
) -> None:
    assert detect_kind(head, uri, asked) == FileKind(format, compression)


DAMAGED = {
    "empty gz": (b"", "a.jsonl.gz", AUTO, FileOutcome.EMPTY_FILE, "upload may have failed"),
    "empty Parquet by suffix": (b"", "a.parquet", JSONL, FileOutcome.EMPTY_FILE, ".parquet"),
    "empty Parquet by format": (b"", "a", PARQUET, FileOutcome.EMPTY_FILE, "Parquet"),
    "Parquet suffix only": (b"xxxx", "a.parquet", AUTO, FileOutcome.CORRUPT_FILE, "PAR1"),
    "packed Parquet": (
        gzip.compress(b"PAR1..."),
        "a.parquet.gz",
        AUTO,
        FileOutcome.CORRUPT_FILE,
        "decompress the file",
    ),
    "gzip for Parquet": (gzip.compress(b"words"), "a", PARQUET, FileOutcome.CORRUPT_FILE, "a gzip file"),
    "UTF-16": (
        b"\xff\xfe{\x00",
        "a b.jsonl",
        AUTO,
        FileOutcome.WRONG_ENCODING,
        "iconv -f UTF-16 -t UTF-8 < 'a b.jsonl' > 'utf8-a b.jsonl'",
    ),
    "UTF-32": (
        b"\xff\xfe\0\0",
        "a.txt",
        TEXT,
        FileOutcome.WRONG_ENCODING,
        "iconv -f UTF-32 -t UTF-8 < a.txt > utf8-a.txt",
    ),
    "UTF-16 in a store": (
        b"\xff\xfe{\x00",
        "gs://bucket/d/a b.jsonl",
        AUTO,
        FileOutcome.WRONG_ENCODING,
        "download the file; then: iconv -f UTF-16 -t UTF-8 < 'a b.jsonl' > 'utf8-a b.jsonl'",
    ),
    "UTF-16 packed": (
        gzip.compress(b"\xfe\xff"),
        "d/a.txt.gz",
        AUTO,
        FileOutcome.WRONG_ENCODING,
        "test -f d/a.txt.gz && zcat d/a.txt.gz | iconv -f UTF-16 -t UTF-8 > d/utf8-a.txt",
    ),
}


@pytest.mark.parametrize(("head", "uri", "asked", "outcome", "detail"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_that_the_first_bytes_show_is_named(
    head: bytes, uri: str, asked: SourceFormat, outcome: FileOutcome, detail: str
) -> None:
    with pytest.raises(CorruptFileError) as raised:
        detect_kind(head, uri, asked)
    assert raised.value.outcome is outcome
    assert detail in raised.value.detail
    assert kind_of_source(uri, len(head), asked, lambda _: io.BytesIO(head)) is None


@pytest.mark.parametrize(
    ("head", "uri", "next_step"),
    [
        (b"Once upon a time", "part-0", "source.format"),
        (b"[1, 2]", "part-0.dat", "source.format"),
        (zstd.compress(b"Once"), "part-0.zst", "source.format"),
    ],
    ids=["text", "array", "packed text"],
)
def test_a_format_that_cannot_be_told_or_read_is_an_error_of_the_job(head: bytes, uri: str, next_step: str) -> None:
    with pytest.raises(SpecError) as raised:
        detect_kind(head, uri, AUTO)
    assert raised.value.reason == "SourceInvalid"
    assert uri in raised.value.message
    assert next_step in raised.value.next_step


OTHER_FORMATS = {
    "JSON lines as Parquet": (LINE, "a.jsonl", PARQUET, "a.jsonl begins with '{': it is not Parquet"),
    "packed JSON lines as Parquet": (gzip.compress(LINE), "a.gz", PARQUET, "a.gz begins with '{': it is not Parquet"),
    "Parquet as JSON lines": (b"PAR1\x15\x04", "a", JSONL, "a is Parquet, and source.format is Jsonl"),
    "Parquet as text": (b"PAR1\x15\x04", "a", TEXT, "a is Parquet, and source.format is Text"),
    "a table as JSON lines": (b"text,n\n", "a.csv", JSONL, "a.csv is a table (.csv)"),
}


@pytest.mark.parametrize(("head", "uri", "asked", "words"), OTHER_FORMATS.values(), ids=OTHER_FORMATS.keys())
def test_a_file_of_another_format_than_the_one_asked_for_is_refused(
    head: bytes, uri: str, asked: SourceFormat, words: str
) -> None:
    with pytest.raises(SpecError, match="SourceInvalid") as raised:
        detect_kind(head, uri, asked)
    assert words in raised.value.message


def test_a_text_may_begin_with_the_magic_letters_of_parquet() -> None:
    assert detect_kind(b"PAR1 is a word", "a", TEXT) == FileKind(TEXT, NONE)
    assert detect_kind(LINE, "a.csv", JSONL) == FileKind(JSONL, NONE)


def test_the_plan_looks_at_the_head_of_a_file_only() -> None:
    class Watched(io.BytesIO):
        pass

    stream = Watched(BIG)
    assert kind_of_source("a", len(BIG), AUTO, lambda _: stream) == FileKind(JSONL, NONE)
    assert stream.closed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (random.Random(1).randbytes(2000), ("its content is binary", "leave it out")),
        (b"some words\n" * 9, ("begins with b'some words", "add --source.format Text (in a manifest")),
        (
            "some words\n".encode("utf-16-le") * 9,
            ("looks like UTF-16LE", "iconv -f UTF-16LE -t UTF-8 < run.log > utf8-"),
        ),
    ],
    ids=["binary", "text", "UTF-16"],
)
def test_a_file_of_an_unknown_format_is_told_what_it_looks_like(content: bytes, words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as raised:
        detect_kind(content, "run.log", AUTO)
    told = f"{raised.value.message}; {raised.value.next_step}"
    assert [word for word in words if word not in told] == []
    assert "Jsonl" not in told
