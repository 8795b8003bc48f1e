"""Files that are small and long: millions of blank lines, of frames of nothing. Exact, and no work for each of them."""

from __future__ import annotations

import gzip
import io
import random
import sys
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.faults.hostile import skippable_frame
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers import decompress, head
from tokenization_worker.readers import open as opening
from tokenization_worker.readers.decompress import StoredBytes, read_blocks, zstd
from tokenization_worker.readers.document_batch import Compression, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.head import read_head
from tokenization_worker.readers.lines import jsonl, text_fields
from tokenization_worker.readers.lines.blank_lines import first_lines, skip_blank_lines
from tokenization_worker.readers.open import read_documents
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders import source as verifying
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.decoders.source import read_records

DOCUMENT = b'{"text": "a document"}\n'
BLANKS = {
    "LF": b"\n",
    "CR LF": b"\r\n",
    "spaces": b"   \n",
    "tabs and CR": b"\t\r \n",
}


def read(content: bytes, start: int = 0, end: int = -1, max_bytes: int = 1000) -> tuple[list[tuple], int]:
    """[(position, text or reason, record of one that is refused)] of a slice, and its number of records."""
    kind = FileKind(SourceFormat.JSONL, Compression.NONE)
    source = FileSlice(0, "f.jsonl", len(content), "", start, end, kind)
    options = ReadOptions(SourceFormat.JSONL, "text", None, max_bytes)
    found: list[tuple] = []
    records = 0
    for batch in read_documents(source, options, lambda _: io.BytesIO(content)):
        found += zip(batch.positions.tolist(), batch.texts, [None] * len(batch.texts), strict=True)
        found += [(item.position, str(item.reason), item.record) for item in batch.rejected]
        records += batch.records
    return sorted(found), records


def verified(content: bytes, max_bytes: int = 1000) -> list[tuple]:
    """[(position, text or reason, line number)] as `verify` reads the file."""
    rules = SourceRules(SourceFormat.JSONL, "text", None, max_bytes)
    records = read_records(io.BytesIO(content), "f.jsonl", rules)
    return [(item.position, item.text if item.text is not None else str(item.reason), item.number) for item in records]


def naive(content: bytes, longest: int) -> list[tuple]:
    """[(position, text or reason, line number)] the obvious way; lines are as in `LINES`."""
    found: list[tuple] = []
    position = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        if len(line) > longest:
            found.append((position, "DocumentTooLarge", number))
        elif line == b"null":
            found.append((position, "NotAnObject", number))
        elif line.strip(b" \t\r"):
            found.append((position, line.split(b'"')[3].decode() if line.startswith(b"{") else "InvalidJson", number))
        position += len(line) + 1
    return found


LINES = [b"", b"", b"", b"\r", b" ", b"\t \r", b" " * 29, b" " * 30, b" " * 31, b'{"text": "x"}', b"null", b"\x0b"]


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=12),
    newline=st.booleans(),
    block=st.integers(1, 40),
)
@settings(max_examples=60)
def test_blank_lines_count_and_are_nothing_else_wherever_a_file_is_cut(
    lines: list[bytes], newline: bool, block: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if newline else b"")
    expected = naive(content, 30)
    with pytest.MonkeyPatch.context() as patch:
        for module in (jsonl, opening):
            patch.setattr(module, "max_line_bytes", lambda _: 30)
        patch.setattr(verifying, "_longest_line", lambda _: 30)
        patch.setattr(decompress, "BLOCK_BYTES", block)
        patch.setattr(verifying, "_BLOCK_BYTES", block)
        whole, n_lines = read(content)
        assert [item[:2] for item in whole] == [item[:2] for item in expected]
        assert [item[2] for item in whole if item[2] is not None] == [
            number - 1 for _, what, number in expected if what[0].isupper()
        ]
        assert n_lines == content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        assert verified(content) == expected
        for cut in range(len(content) + 1):
            (first, n_first), (second, n_second) = read(content, 0, cut), read(content, cut)
            shifted = [(*item[:2], None if item[2] is None else item[2] + n_first) for item in second]
            assert first + shifted == whole, cut
            assert n_first + n_second == n_lines, cut


@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(0, 5), st.integers(1, 40))
@settings(max_examples=200)
def test_only_whole_blank_lines_are_passed(lines: list[bytes], begin: int, longest: int) -> None:
    data = b"\n".join(lines)
    end, expected = min(begin, len(data)), 0
    while (stop := data.find(b"\n", end)) >= 0 and stop - end <= longest and not data[end:stop].strip(b" \t\r"):
        end, expected = stop + 1, expected + 1
    assert skip_blank_lines(data, min(begin, len(data)), len(data), longest) == (end, expected)


def count_calls(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's, that `work` makes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("blank", BLANKS.values(), ids=BLANKS.keys())
@pytest.mark.parametrize("before", [b"", DOCUMENT, DOCUMENT * 300], ids=["nothing", "one document", "documents"])
@pytest.mark.parametrize("reader", [read, verified], ids=["run", "verify"])
def test_blank_lines_cost_a_scan_and_no_call_each(
    blank: bytes, before: bytes, reader: Callable[[bytes], object]
) -> None:
    content = before + blank * 200_000 + DOCUMENT
    short = count_calls(lambda: reader(before + blank * 2_000 + DOCUMENT))
    assert count_calls(lambda: reader(content)) < short + 1000
    found = reader(content)
    assert (found[0] if reader is read else found)[-1][0] == len(content) - len(DOCUMENT)  # type: ignore[index]


FRAMES = {
    "frames of nothing": zstd.compress(b""),
    "frames of nothing with a checksum": zstd.compress(b"", options={zstd.CompressionParameter.checksum_flag: 1}),
    "skippable frames": skippable_frame(b"note"),
    "frames of one byte": zstd.compress(b"\n"),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
@pytest.mark.parametrize("reader", ["run", "verify"])
def test_small_frames_take_no_decoder_each(frame: bytes, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    original = zstd.ZstdDecompressor

    def counted(**options: object) -> object:
        nonlocal made
        made += 1
        return original(**options)

    packed = zstd.compress(DOCUMENT) + frame * 50_000 + zstd.compress(DOCUMENT)
    monkeypatch.setattr(zstd, "ZstdDecompressor", counted)
    if reader == "run":
        content = b"".join(read_blocks(StoredBytes(io.BytesIO(packed)), Compression.ZSTD))
        assert content.replace(DOCUMENT, b"").count(b"\n") in (0, 50_000)
        assert content.startswith(DOCUMENT) and content.endswith(DOCUMENT)
    else:
        assert len(verified(packed)) == 2
    assert made < 20


@pytest.mark.parametrize("seed", range(20))
def test_small_frames_of_all_kinds_hold_what_they_hold(seed: int) -> None:
    chance = random.Random(seed)
    contents = [b"", b"\n", b"a\n", b"x" * 5000 + b"\n", bytes(200_000), chance.randbytes(300) + b"\n"]
    chosen = [chance.choice(contents) for _ in range(400)]
    frames = [zstd.compress(part) + (skippable_frame(b"s" * chance.randrange(80)) if part else b"") for part in chosen]
    packed, expected = b"".join(frames), b"".join(chosen)
    sizes = iter(lambda: chance.randrange(1, 3000), None)
    assert b"".join(read_blocks(StoredBytes(Trickle(packed, sizes)), Compression.ZSTD)) == expected
    content, _ = verifying._decompressed(io.BufferedReader(io.BytesIO(packed)), packed[:4])
    assert verifying._read(content, len(expected) + 1) == expected


class Parser:
    """orjson, whose calls are counted."""

    JSONDecodeError = orjson.JSONDecodeError

    def __init__(self) -> None:
        self.calls = 0

    def loads(self, line: bytes) -> object:
        self.calls += 1
        return orjson.loads(line)


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        *(pytest.param(BLANKS[name] * 50_000, 9, id=name) for name in BLANKS),
        pytest.param(b"x\n" * 50_000, 1100, id="x"),
    ],
)
def test_a_look_at_the_fields_of_a_file_parses_few_of_its_lines(
    lines: bytes, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 KB of zstd hold 64 Mi lines, and an error of the parser for each of them takes a microsecond."""
    parser = Parser()
    monkeypatch.setattr(head, "orjson", parser)
    monkeypatch.setattr(text_fields, "orjson", parser)
    content = b'\xef\xbb\xbf\n{"first": "a"}\n' + lines + (b'{"last": "b"}' if most < 1000 else b"")
    options = ReadOptions(SourceFormat.JSONL, "text", None, 1000)
    sample = read_head("f.jsonl", len(content), options, len(content), lambda _: io.BytesIO(content))
    assert sample.fields == (["first", "last"] if most < 1000 else ["first"])
    assert ("first, last" in sample.field_advice) == (most < 1000)
    assert parser.calls <= most


def test_the_first_lines_are_those_that_are_not_blank() -> None:
    content = b"\xef\xbb\xbf\n \na\r\n\n\nb\n\t\n c"
    assert list(first_lines(content, 9)) == [b"a\r", b"b", b" c"]
    assert list(first_lines(content, 2)) == [b"a\r", b"b"]
    assert list(first_lines(b"", 9)) == list(first_lines(b"\n\n", 9)) == []


class Trickle(io.BytesIO):
    """A stream whose reads end anywhere."""

    def __init__(self, content: bytes, sizes: object) -> None:
        super().__init__(content)
        self._sizes = sizes

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(next(self._sizes))  # type: ignore[call-overload]


@pytest.mark.parametrize("packed", [zstd.compress(b"") * 30, gzip.compress(b"") * 30], ids=["zstd", "gzip"])
def test_a_cut_in_the_last_of_many_empty_frames_is_damage(packed: bytes) -> None:
    for size in range(len(packed) - 5, len(packed)):
        with pytest.raises(CorruptSource):
            verified(packed[:size])
        with pytest.raises(decompress.CorruptFileError):
            compression = Compression.ZSTD if packed[0] == 0x28 else Compression.GZIP
            list(read_blocks(StoredBytes(io.BytesIO(packed[:size])), compression))
