"""Cuts the ordered files into ranges. Pure: a function argument inspects the inside of a file.

A range is about `range_bytes` of stored bytes. Small files share a range. Files larger than a range are cut
where that needs no reading: plain JSONL and text at any byte (the reader finds the next record), Parquet
between row groups, gzip and zstd at any byte of what they are estimated to hold. The cut never influences the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenization_worker.output.plan_file import Cut
from tokenization_worker.readers.document_batch import FileKind
from tokenization_worker.storage.source_file import SourceFile

SMALLEST_AUTOMATIC_RANGE = 1 << 20
"""Below this a range's fixed costs (segment, receipt, one task) are more than its work."""

RANGES_PER_SLOT = 16
"""What one slot should find to do at least: the last ranges of a run keep one process busy while the others
wait, on average for half a range."""


MOST_PACKED_PIECES = 32
"""Parts of one gzip or zstd file: a process that begins in the middle inflates all before it, so that reading each
part from the start costs half as many inflations of the file as there are parts. Two for each of 16 processes."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What the planner must know of a file larger than a range.

    `row_groups`: stored bytes of each Parquet row group; `cuttable`: may be cut at any byte; `content_bytes`: of a
    compressed file that may be cut at any byte of its content, how many there are, about.
    """

    kind: FileKind | None
    cuttable: bool = False
    content_bytes: int = 0
    row_groups: tuple[int, ...] = ()


def choose_range_bytes(wanted: int, total_bytes: int, slots: int | None) -> int:
    """`wanted`, or less where that would leave a slot too few ranges (None: a cluster, which has many)."""
    if slots is None:
        return wanted
    return min(wanted, max(total_bytes // (RANGES_PER_SLOT * slots), SMALLEST_AUTOMATIC_RANGE))


def cut_files(
    files: Sequence[SourceFile], range_bytes: int, inspect_file: Callable[[SourceFile], Inside]
) -> tuple[Cut, tuple[FileKind | None, ...]]:
    """Cut `files` into ranges of about `range_bytes`; also returns the kinds that were found out."""
    kinds: list[FileKind | None] = [None] * len(files)
    slices: list[tuple[int, int, int]] = []
    range_slice = [0]
    sizes: list[int] = []
    pending = 0

    def close_range() -> None:
        nonlocal pending
        if len(slices) > range_slice[-1]:
            range_slice.append(len(slices))
            sizes.append(pending)
        pending = 0

    for number, file in enumerate(files):
        if file.size <= range_bytes:
            slices.append((number, 0, -1))
            pending += file.size
            if pending >= range_bytes:
                close_range()
            continue
        close_range()
        inside = inspect_file(file)
        kinds[number] = inside.kind
        for start, end, size in _parts(file.size, inside, range_bytes):
            slices.append((number, start, end))
            pending = size
            close_range()
    close_range()

    columns = np.array(slices, dtype=np.int64).reshape(-1, 3)
    cut = Cut(
        slice_file=columns[:, 0].astype(np.int32),
        slice_start=columns[:, 1].copy(),
        slice_end=columns[:, 2].copy(),
        range_slice=np.array(range_slice, dtype=np.int64),
        range_bytes=np.array(sizes, dtype=np.int64),
    )
    return cut, tuple(kinds)


def _parts(size: int, inside: Inside, range_bytes: int) -> list[tuple[int, int, int]]:
    """(start, end, stored bytes) of each part of a file larger than a range."""
    if inside.cuttable:
        count = -(-size // range_bytes)
        ends = [size * (i + 1) // count for i in range(count)]
        return [(start, end, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    if inside.content_bytes:
        count = min(-(-size // range_bytes), MOST_PACKED_PIECES, inside.content_bytes)
        borders = [inside.content_bytes * i // count for i in range(count)]
        shares = [size * (i + 1) // count - size * i // count for i in range(count)]
        return list(zip(borders, [*borders[1:], -1], shares, strict=True))
    if len(inside.row_groups) > 1:
        parts = []
        start = pending = 0
        for group, group_bytes in enumerate(inside.row_groups):
            pending += group_bytes
            if pending >= range_bytes or group == len(inside.row_groups) - 1:
                parts.append((start, group + 1, pending))
                start, pending = group + 1, 0
        return parts
    return [(0, -1, size)]
