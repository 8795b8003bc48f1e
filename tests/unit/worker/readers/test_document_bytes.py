"""The bytes of documents, read and unusable, are sums that no cut, block or engine changes."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers import batches, decompress
from tokenization_worker.readers.document_batch import Compression, CrashVerdict, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.exclusions import read_without

MAX_BYTES = 40
BOM = b"\xef\xbb\xbf"
SEPARATOR = b"<|end|>"

LINES = [
    b'{"text":"good"}',
    orjson.dumps({"text": "é" * 15, "id": 7}),
    b'{"text":"' + b"x" * 41 + b'"}',
    b'{"text":"' + b"y" * (6 * MAX_BYTES + (64 << 10)) + b'"}',
    b"not JSON",
    b'{"text":"\xff"}',
    b'{"text":null}',
    b"[1]",
    b"",
    b" \t\r",
]
PIECES = [b"good", "é".encode() * 20, b"x" * 41, b"\xff", b"", b"two\nlines"]


@dataclass(frozen=True)
class Sums:
    """Bytes of all documents of a file, and of the unusable ones."""

    read: int = 0
    unusable: int = 0


def is_usable_line(line: bytes) -> bool:
    try:
        text = orjson.loads(line)["text"]
    except (orjson.JSONDecodeError, TypeError):
        return False
    return isinstance(text, str) and len(text.encode()) <= MAX_BYTES


def sums_of_lines(content: bytes) -> Sums:
    """The obvious way: a record is a line with its LF; blank ones are none; a byte order mark belongs to the first."""
    read = unusable = 0
    for number, line in enumerate(split(content)):
        record = line.removeprefix(BOM) if number == 0 else line
        if record.strip(b" \t\r\n"):
            read += len(line)
            unusable += 0 if is_usable_line(record) else len(line)
    return Sums(read, unusable)


def split(content: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in content.split(b"\n")]
    return [*lines[:-1], lines[-1][:-1]]


def sums_of_pieces(content: bytes, separator: bytes | None) -> Sums:
    read = unusable = 0
    pieces = content.split(separator) if separator else [content]
    for number, piece in enumerate(pieces):
        document = piece.removeprefix(BOM) if number == 0 else piece
        read += len(document)
        unusable += 0 if len(document) <= MAX_BYTES and b"\xff" not in document else len(document)
    return Sums(read, unusable)


def read_sums(source: FileSlice, options: ReadOptions, content: bytes, poison: dict[int, CrashVerdict]) -> Sums:
    read = unusable = 0
    for batch in read_without(source, options, lambda _: io.BytesIO(content), poison):
        read += batch.source_bytes - batch.other_bytes
        unusable += sum(item.bytes for item in batch.rejected)
    return Sums(read, unusable)


def sums_of_slices(
    format: SourceFormat, separator: bytes | None, content: bytes, cuts: list[int], poison: dict[int, CrashVerdict]
) -> Sums:
    options = ReadOptions(format, "text", separator, MAX_BYTES)
    kind = FileKind(format, Compression.NONE)
    total = Sums()
    for start, end in zip([0, *cuts], [*cuts, -1], strict=True):
        part = FileSlice(0, "file", len(content), "", start, end, kind)
        found = read_sums(part, options, content, poison)
        total = Sums(total.read + found.read, total.unusable + found.unusable)
    return total


@pytest.fixture(params=["large", "small"])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks and batches of a few bytes, so that every border is crossed; or as they are."""
    if request.param == "small":
        monkeypatch.setattr(decompress, "BLOCK_BYTES", 16)
        monkeypatch.setattr(decompress, "READ_BYTES", 16)
        monkeypatch.setattr(batches, "MAX_REJECTED", 2)
        monkeypatch.setattr(batches, "MAX_TEXTS", 3)
        monkeypatch.setattr(batches, "BATCH_BYTES", 32)
    yield


@st.composite
def files(draw: st.DrawFn, records: list[bytes], separator: bytes) -> tuple[bytes, list[int]]:
    chosen = draw(st.lists(st.sampled_from(records), max_size=12))
    content = separator.join(chosen) + (separator if draw(st.booleans()) else b"")
    content = (BOM if draw(st.booleans()) else b"") + content
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(content))), max_size=4)))
    return content, cuts


@pytest.mark.usefixtures("small_parts")
@given(file=files(LINES, b"\n"))
@settings(max_examples=60)
def test_lines_count_with_their_line_feed_whatever_the_cut(file: tuple[bytes, list[int]]) -> None:
    content, cuts = file
    assert sums_of_slices(SourceFormat.JSONL, None, content, cuts, {}) == sums_of_lines(content)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("separator", [SEPARATOR, b"\n"])
@given(data=st.data())
@settings(max_examples=60)
def test_pieces_of_text_count_without_their_separator_whatever_the_cut(separator: bytes, data: st.DataObject) -> None:
    content, cuts = data.draw(files([piece for piece in PIECES if separator not in piece], separator))
    assert sums_of_slices(SourceFormat.TEXT, separator, content, cuts, {}) == sums_of_pieces(content, separator)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("content", [*PIECES, BOM, BOM + b"good", BOM + b"\xff", b"z" * 5000])
def test_a_file_that_is_one_document_counts_without_its_byte_order_mark(content: bytes) -> None:
    assert sums_of_slices(SourceFormat.TEXT, None, content, [], {}) == sums_of_pieces(content, None)


def test_values_of_parquet_count_and_a_null_has_no_bytes() -> None:
    values = [b"good", None, b"x" * 41, b"\xff\xfe", "é".encode()]
    file = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(values, pa.binary())}), file, row_group_size=2)
    content = file.getvalue()
    options = ReadOptions(SourceFormat.PARQUET, "text", None, MAX_BYTES)
    kind = FileKind(SourceFormat.PARQUET, Compression.NONE)
    parts = [FileSlice(0, "file", len(content), "", start, start + 1, kind) for start in range(3)]
    sums = [read_sums(part, options, content, {}) for part in parts]
    assert (sum(s.read for s in sums), sum(s.unusable for s in sums)) == (4 + 41 + 2 + 2, 41 + 2)
    killer = CrashVerdict(4, "exit code 1", "", 2)
    assert read_sums(parts[2], options, content, {4: killer}) == Sums(2, 2)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("cuts", [[], [20], [5, 40]], ids=str)
def test_a_document_that_kills_its_worker_counts_with_all_of_its_line(cuts: list[int]) -> None:
    lines = [b"", b'{"text":"one"}', b" ", b'{"id":1,"text":"killer"}', b"not JSON", b'{"text":"two"}']
    content = b"\n".join(lines)
    position = content.index(b'{"id"')
    found = sums_of_slices(
        SourceFormat.JSONL, None, content, cuts, {position: CrashVerdict(position, "signal 11", "", 6)}
    )
    assert found == Sums(sums_of_lines(content).read, len(lines[3]) + 1 + len(b"not JSON\n"))


def test_a_killer_in_text_counts_its_own_bytes() -> None:
    content = SEPARATOR.join([b"one", "kïller".encode(), b"two"])
    killer = {len(b"one" + SEPARATOR): CrashVerdict(0, "signal 11", "", 7)}
    assert sums_of_slices(SourceFormat.TEXT, SEPARATOR, content, [], killer) == Sums(13, 7)


def test_sums_of_a_compressed_file_are_those_of_its_content(tmp_path: Path) -> None:
    content = b"\n".join(LINES)
    options = ReadOptions(SourceFormat.JSONL, "text", None, MAX_BYTES)
    packed = gzip.compress(content)
    kind = FileKind(SourceFormat.JSONL, Compression.GZIP)
    ends = [0, 100, 66000, -1]
    sums = [
        read_sums(FileSlice(0, "f.gz", len(packed), "", start, end, kind), options, packed, {})
        for start, end in pairwise(ends)
    ]
    assert Sums(sum(s.read for s in sums), sum(s.unusable for s in sums)) == sums_of_lines(content)
