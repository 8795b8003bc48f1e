"""Ranges cover every byte of every file once, in order, and are about as large as was asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.output.plan_file import Cut
from tokenization_worker.planning.cut import (
    MOST_PACKED_PIECES,
    RANGES_PER_SLOT,
    SMALLEST_AUTOMATIC_RANGE,
    Inside,
    choose_range_bytes,
    cut_files,
)
from tokenization_worker.readers.document_batch import Compression, FileKind
from tokenization_worker.storage.source_file import SourceFile

MIB = 1 << 20
LINES = FileKind(SourceFormat.JSONL, Compression.NONE)


def files_of(*sizes: int) -> list[SourceFile]:
    return [SourceFile(f"/{number}", size, "v") for number, size in enumerate(sizes)]


def slices_of(cut: Cut) -> list[list[tuple[int, int, int]]]:
    """The slices (file, start, end) of each range."""
    rows = list(zip(cut.slice_file.tolist(), cut.slice_start.tolist(), cut.slice_end.tolist(), strict=True))
    borders = cut.range_slice.tolist()
    return [rows[start:end] for start, end in itertools.pairwise(borders)]


def never_inspected(file: SourceFile) -> Inside:
    raise AssertionError(f"{file.uri} is no larger than a range")


@pytest.mark.parametrize(
    ("wanted", "total", "slots", "chosen"),
    [
        (64 * MIB, 10**15, 4, 64 * MIB),
        (64 * MIB, 64 * RANGES_PER_SLOT * MIB, 4, 16 * MIB),
        (64 * MIB, 100, 4, SMALLEST_AUTOMATIC_RANGE),
        (1000, 10**15, 4, 1000),
        (64 * MIB, 100, None, 64 * MIB),
    ],
    ids=["enough for all", "16 for each slot", "not below 1 MiB", "smaller as asked", "a cluster"],
)
def test_each_slot_gets_ranges_enough_unless_they_would_be_tiny(
    wanted: int, total: int, slots: int | None, chosen: int
) -> None:
    assert choose_range_bytes(wanted, total, slots) == chosen


def test_small_files_share_a_range_until_it_is_full() -> None:
    cut, kinds = cut_files(files_of(40, 40, 40, 0, 100, 5), 100, never_inspected)
    assert slices_of(cut) == [[(0, 0, -1), (1, 0, -1), (2, 0, -1)], [(3, 0, -1), (4, 0, -1)], [(5, 0, -1)]]
    assert cut.range_bytes.tolist() == [120, 100, 5]
    assert kinds == (None,) * 6


def test_a_large_file_shares_its_ranges_with_no_other() -> None:
    inside = Inside(LINES, cuttable=True)
    cut, kinds = cut_files(files_of(10, 250, 10), 100, lambda file: inside)
    assert slices_of(cut) == [[(0, 0, -1)], [(1, 0, 83)], [(1, 83, 166)], [(1, 166, 250)], [(2, 0, -1)]]
    assert kinds == (None, LINES, None)


def test_no_file_is_no_range() -> None:
    cut, kinds = cut_files([], 100, never_inspected)
    assert (slices_of(cut), kinds, cut.slice_file.dtype) == ([], (), np.int32)


@pytest.mark.parametrize(
    ("groups", "slices"),
    [
        ((60, 60, 60, 60, 60), [(0, 2, 120), (2, 4, 120), (4, 5, 60)]),
        ((300, 1, 1), [(0, 1, 300), (1, 3, 2)]),
        ((302,), [(0, -1, 302)]),
    ],
    ids=["shared", "one is larger than a range", "one alone"],
)
def test_parquet_is_cut_between_row_groups(groups: tuple[int, ...], slices: list[tuple[int, int, int]]) -> None:
    inside = Inside(FileKind(SourceFormat.PARQUET, Compression.NONE), row_groups=groups)
    cut, _ = cut_files(files_of(302), 100, lambda file: inside)
    found = [(start, end) for ((_, start, end),) in slices_of(cut)]
    assert list(zip(found, cut.range_bytes.tolist(), strict=True)) == [((a, b), size) for a, b, size in slices]


def test_the_last_part_of_a_packed_file_has_no_end_since_its_content_is_estimated() -> None:
    inside = Inside(LINES, content_bytes=1000)
    cut, _ = cut_files(files_of(250), 100, lambda file: inside)
    assert slices_of(cut) == [[(0, 0, 333)], [(0, 333, 666)], [(0, 666, -1)]]
    assert cut.range_bytes.sum() == 250


@given(
    sizes=st.lists(st.integers(0, 5000), max_size=12),
    range_bytes=st.integers(1, 800),
    inside=st.sampled_from(["cuttable", "packed", "whole"]),
)
def test_every_stored_byte_is_in_one_range(sizes: list[int], range_bytes: int, inside: str) -> None:
    def inspect(file: SourceFile) -> Inside:
        content = 3 * file.size if inside == "packed" else 0
        return Inside(LINES, cuttable=inside == "cuttable", content_bytes=content)

    cut, _ = cut_files(files_of(*sizes), range_bytes, inspect)
    assert cut.range_bytes.sum() == sum(sizes)
    rows = [row for slices in slices_of(cut) for row in slices]
    assert all(slices_of(cut)), "no range is empty"
    for number, size in enumerate(sizes):
        parts = [(start, end) for file, start, end in rows if file == number]
        assert parts[0][0] == 0
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(parts))
        assert parts[-1][1] in (-1, size)
        assert len(parts) <= max(1, -(-size // range_bytes))
        if inside == "packed":
            assert len(parts) <= MOST_PACKED_PIECES
    assert [file for file, _, _ in rows] == sorted(file for file, _, _ in rows)
