"""Chooses the files whose heads the plan reads, spread over the stored bytes of a source. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from tokenization_worker.storage.source_file import SourceFile

SAMPLED_FILES = 16
SAMPLE_BYTES = 32 << 10
"""Of decompressed text from each sampled file: half a megabyte in all takes about 35 ms with the reference engine."""

SAMPLED_BYTES = SAMPLED_FILES * SAMPLE_BYTES
"""In all; of fewer files more of each, and of more files, where there are many groups, `SAMPLE_BYTES` of each."""

_FEWEST_OF_A_GROUP = 4
"""Files; in 64 groups 256, of which the reference engine encodes 8 MB."""


def choose_samples(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files to look into, spread over the stored bytes of each group of the source."""
    groups = by_group(files)
    most = sampled_files(len(groups))
    return [file for group in groups.values() for file, _ in spread(group, most)]


def by_group(files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    return {name: list(group) for name, group in groupby(files, key=lambda file: file.group)}


def sampled_files(n_groups: int) -> int:
    """Of each group."""
    return max(_FEWEST_OF_A_GROUP, SAMPLED_FILES // max(1, n_groups))


def spread(files: Sequence[SourceFile], most: int) -> list[tuple[SourceFile, float]]:
    """At most so many of the files, each with the stored bytes for which its sample stands.

    Of more files those at equal distances of stored bytes: a large file is met more often than a small one, and stands
    for as much more. Where files of different sizes hold different text, a choice by number would count too much of the
    small ones.
    """
    if len(files) <= most:
        return [(file, float(file.size)) for file in files]
    ends = np.cumsum([file.size for file in files])
    part = float(ends[-1]) / most
    if not part:
        return [(file, 0.0) for file in files[:most]]
    numbers, times = np.unique(np.searchsorted(ends, (np.arange(most) + 0.5) * part, "right"), return_counts=True)
    return [(files[number], n * part) for number, n in zip(numbers.tolist(), times.tolist(), strict=True)]
