"""Long records: what is kept of them, what is not, and where they stand."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from tokenization_worker.readers.document_batch import excerpt
from tokenization_worker.readers.lines import record_splitter
from tokenization_worker.readers.lines.record_splitter import Oversized, Run, split_runs

MIB = 1 << 20


def long_line(size: int, fill: bytes = b"x") -> Iterator[bytes]:
    """A short line, one of `size` bytes, and another short one, in blocks of 1 MiB."""
    yield b"first\n"
    for _ in range(size // MIB):
        yield fill * MIB
    yield fill * (size % MIB) + b"\nlast\n"


def test_a_record_over_the_limit_is_passed_over_without_being_kept() -> None:
    tracemalloc.start()
    try:
        runs = list(split_runs(long_line(200 * MIB), 0, -1, b"\n", 6 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB
    assert runs[1] == Oversized(6, 200 * MIB, b"x" * 804, 200 * MIB + 1)
    assert [run.offset for run in runs] == [0, 6, 6 + 200 * MIB + 1]


def test_a_long_record_within_the_limit_comes_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_splitter, "PACK_ABOVE_BYTES", 2 * MIB)
    content = b"".join(long_line(5 * MIB + 17, b"ab"))
    runs = list(split_runs(long_line(5 * MIB + 17, b"ab"), 0, -1, b"\n", 30 * MIB))
    assert b"".join(bytes(run.data[run.begin : run.end]) for run in runs if isinstance(run, Run)) == content


def test_what_an_unfinished_record_holds_beyond_a_size_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_splitter, "PACK_ABOVE_BYTES", 8 * MIB)
    tracemalloc.start()
    try:
        runs = list(split_runs(long_line(400 * MIB), 0, -1, b"\n", 300 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(runs[1], Oversized)
    assert peak < 24 * MIB


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"short", "short"),
        ("é".encode() * 500, "é" * 200),
        ("🦊".encode() * 500, "🦊" * 200),
        (b"\xff" * 500, "\ufffd" * 200),
        (b"a\x00b", "a\x00b"),
    ],
    ids=["short", "two bytes", "four bytes", "not UTF-8", "NUL"],
)
def test_an_excerpt_is_the_first_200_characters(raw: bytes, shown: str) -> None:
    assert excerpt(raw) == shown
