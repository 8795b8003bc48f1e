"""Cutting a file anywhere changes nothing: the slices together hold the same records at the same places."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers import decompress
from tokenization_worker.readers.document_batch import Compression, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.lines.record_splitter import Oversized, Run, can_cut, first_byte, split_runs
from tokenization_worker.readers.open import read_documents

SEPARATORS = [b"\n", b"\r\n", b"<|endoftext|>", b"ab", b"\n\n\n-", "§→".encode()]
OVERLAPPING = [b"aa", b"\n\n", b"aba", b"abcab"]
BOM = b"\xef\xbb\xbf"


@st.composite
def contents(draw: st.DrawFn, separator: bytes) -> bytes:
    """Pieces of separators, whole separators, and what looks like neither."""
    prefixes = [separator[:size] for size in range(1, len(separator) + 1)]
    piece = st.sampled_from([*prefixes, separator, separator * 2, b"x", b"ab", b" ", BOM, b"\xff"])
    parts = draw(st.lists(piece, max_size=40))
    return (BOM if draw(st.booleans()) else b"") + b"".join(parts)


def oracle(content: bytes, separator: bytes) -> list[tuple[int, bytes]]:
    """(offset, record) of a whole file, the obvious way."""
    found = []
    offset = 0
    pieces = content.split(separator)
    if not pieces[-1]:
        pieces.pop()
    for number, piece in enumerate(pieces):
        record = piece.removeprefix(BOM) if number == 0 else piece
        if record or len(pieces) > number + 1 or content.endswith(separator):
            found.append((offset, record))
        offset += len(piece) + len(separator)
    return found


def blocks_of(content: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The content in blocks of these sizes, over and over."""
    at = number = 0
    while at < len(content):
        size = sizes[number % len(sizes)]
        yield content[at : at + size]
        at += size
        number += 1


def records(runs: Iterator[Run | Oversized], separator: bytes) -> list[tuple[int, bytes]]:
    found = []
    for run in runs:
        assert isinstance(run, Run)
        data = bytes(run.data[run.begin : run.end])
        if not data:
            continue
        pieces = data.split(separator)
        if not pieces[-1]:
            pieces.pop()
        offset = run.offset
        for piece in pieces:
            found.append((offset, piece))
            offset += len(piece) + len(separator)
    return found


block_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@pytest.mark.parametrize("separator", SEPARATORS, ids=repr)
@given(data=st.data())
@settings(max_examples=150)
def test_slices_of_any_cut_hold_the_records_of_the_whole_file(separator: bytes, data: st.DataObject) -> None:
    content = data.draw(contents(separator))
    inner = data.draw(st.lists(st.integers(0, len(content) + 3), max_size=6))
    cuts = sorted({0, *inner})
    found = []
    source_bytes = 0
    for start, end in zip(cuts, [*cuts[1:], -1], strict=True):
        blocks = blocks_of(content[first_byte(start, separator) :], data.draw(block_sizes))
        runs = list(split_runs(blocks, start, end, separator, 1 << 30))
        part = records(iter(runs), separator)
        assert all(start <= offset and (end < 0 or offset < end) for offset, _ in part)
        found += part
        source_bytes += sum(run.source_bytes for run in runs)
    assert found == oracle(content, separator)
    assert source_bytes == len(content)


@pytest.mark.parametrize("separator", OVERLAPPING, ids=repr)
@given(data=st.data())
@settings(max_examples=100)
def test_separators_that_overlap_themselves_are_found_from_the_left(separator: bytes, data: st.DataObject) -> None:
    content = data.draw(contents(separator))
    blocks = blocks_of(content, data.draw(block_sizes))
    assert records(split_runs(blocks, 0, -1, separator, 1 << 30), separator) == oracle(content, separator)


@pytest.mark.parametrize(
    ("separator", "allowed"),
    [*((separator, True) for separator in SEPARATORS), *((separator, False) for separator in OVERLAPPING)],
    ids=repr,
)
def test_only_separators_that_cannot_overlap_themselves_allow_a_cut(separator: bytes, allowed: bool) -> None:
    assert can_cut(separator) is allowed


def read_slice(content: bytes, start: int, end: int, format: SourceFormat, options: ReadOptions) -> list[tuple]:
    source = FileSlice(0, "f", len(content), "v", start, end, FileKind(format, Compression.NONE))
    found = []
    before = 0
    for batch in read_documents(source, options, lambda _: io.BytesIO(content)):
        found += [
            ("text", position, text) for position, text in zip(batch.positions.tolist(), batch.texts, strict=True)
        ]
        found += [("bad", r.position, r.reason, r.detail, r.excerpt, r.record) for r in batch.rejected]
        before += batch.records
    return [*sorted(found, key=lambda item: item[1]), before]


def line_numbers(slices: list[list]) -> tuple[list[tuple], int]:
    """All documents of slices with ordinals counted over them, and the number of records."""
    found: list[tuple] = []
    before = 0
    for *items, n_records in slices:
        found += [(*item[:-1], item[-1] + before) if item[0] == "bad" else item for item in items]
        before += n_records
    return found, before


LINES = [
    b'{"text": "one"}',
    b'{"text": "line \\u00e9 two"}\r',
    b'{"text": null}',
    b"",
    b" \t\r",
    b"not json",
    b'{"text": "' + b"long " * 30 + b'"}',
    b"[1]",
    '{"text": "日本"}'.encode(),
]


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=30),
    bom=st.booleans(),
    newline=st.booleans(),
    block=st.integers(1, 64),
    data=st.data(),
)
@settings(max_examples=150)
def test_jsonl_slices_give_the_same_documents_positions_and_line_numbers(
    lines: list[bytes], bom: bool, newline: bool, block: int, data: st.DataObject
) -> None:
    content = (BOM if bom else b"") + b"\n".join(lines) + (b"\n" if newline else b"")
    options = ReadOptions(SourceFormat.JSONL, "text", None, 100)
    whole = line_numbers([read_slice(content, 0, -1, SourceFormat.JSONL, options)])
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, len(content)), max_size=5))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "BLOCK_BYTES", block)
        parts = [
            read_slice(content, start, end, SourceFormat.JSONL, options)
            for start, end in zip(cuts, [*cuts[1:], -1], strict=True)
        ]
    assert line_numbers(parts) == whole
    for kind, position, *_ in whole[0]:
        [again] = read_slice(content, position, position + 1, SourceFormat.JSONL, options)[:-1]
        assert (again[0], again[1]) == (kind, position)


@given(
    pieces=st.lists(st.sampled_from(["", "one", " two\n", "日本", "§", "→", "x" * 50]), max_size=20),
    block=st.integers(1, 40),
    data=st.data(),
)
@settings(max_examples=100)
def test_text_slices_give_the_same_documents_and_positions(pieces: list[str], block: int, data: st.DataObject) -> None:
    content = "§→".join(pieces).encode()
    options = ReadOptions(SourceFormat.TEXT, "text", "§→".encode(), 30)
    whole = line_numbers([read_slice(content, 0, -1, SourceFormat.TEXT, options)])
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, len(content)), max_size=5))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "BLOCK_BYTES", block)
        parts = [
            read_slice(content, start, end, SourceFormat.TEXT, options)
            for start, end in zip(cuts, [*cuts[1:], -1], strict=True)
        ]
    assert line_numbers(parts) == whole


def test_a_text_file_without_separator_belongs_to_the_slice_that_holds_its_start() -> None:
    options = ReadOptions(SourceFormat.TEXT, "text", None, 100)
    assert read_slice(b"one text", 0, 3, SourceFormat.TEXT, options) == [("text", 0, "one text"), 1]
    assert read_slice(b"one text", 3, -1, SourceFormat.TEXT, options) == [0]
