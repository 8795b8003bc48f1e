"""Estimates how many rows a source fills, and how much of them is text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import OutputSpec, Scope, SequenceSpec, SplitSpec
from tokenization_worker.planning.splits import Streams
from tokenization_worker.sequences.best_fit import block_borders, largest_block, pack_documents
from tokenization_worker.sequences.parts import PART

_PACKED = 50_000
"""Documents at most, in 50 ms. A few alone would leave more room than many like them."""


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """`count` rows of `length` tokens. `utilization`: the share of them that is text, neither delimiter nor padding.
    `truncated`: tokens of longer documents that are not written."""

    length: int
    count: int
    utilization: float
    truncated: int = 0

    @property
    def tokens(self) -> int:
        """With padding."""
        return self.count * self.length

    def parts_bytes(self, documents: int) -> int:
        """Of the files of parts: nearly every border of a row cuts a document."""
        return PART.itemsize * (documents + self.count)


def count_shards(output: OutputSpec, tokens: int, rows: RowEstimate | None, parts: Sequence[float] = (1.0,)) -> int:
    """How many shards hold so many tokens of documents. `parts`: what shares of them have shards of their own."""
    stored = count_stored(output, tokens, rows)
    return sum(-(-round(stored * part) // output.shard_tokens) for part in parts)


def parts_of(splits: Sequence[SplitSpec], groups: Sequence[int]) -> tuple[float, ...]:
    """The shares of all tokens that have shards of their own. `groups`: tokens of those in paths, () if none are."""
    streams = Streams(tuple(splits))
    ends = [*(end / 2**64 for end in streams.thresholds()), 1.0] if streams.by_hash else [1.0]
    total = sum(groups)
    of_groups = [tokens / total for tokens in groups] if total else [1.0]
    return tuple(group * (end - begin) for group in of_groups for begin, end in pairwise([0.0, *ends]))


def count_stored(output: OutputSpec, tokens: int, rows: RowEstimate | None) -> int:
    """What so many tokens of documents add to shards. Padding counts, except that of uneven shards."""
    return tokens if rows is None or output.has_uneven_shards else rows.tokens


def estimate_rows(
    output: OutputSpec,
    *,
    tokens: float,
    text_tokens: float,
    files: int,
    lengths: NDArray[np.int64],
    truncated: float = 0.0,
) -> RowEstimate | None:
    """None where the output has no rows. `files`: those that hold text; the last row of each is half full on average.
    `lengths` i64[n]: tokens of a sample of documents, each at least 1. `truncated`: as `RowEstimate` has it.

    The last row of a stream alone is padded to its end, so small sources are not overestimated.
    """
    sequence = output.sequence
    if sequence is None:
        return None
    length = sequence.length
    if output.packed_rows is not None:
        window = output.shard_tokens if output.has_uneven_shards else largest_block(length)
        count = _packed_rows(sequence, round(tokens), lengths, int(block_borders(window, length)[1]))
        return RowEstimate(length, count, text_tokens / (count * length) if count else 0.0, round(truncated))
    streams = Streams(output.splits).count
    ends = files * streams if sequence.scope is Scope.FILE else streams
    whole, rest = divmod(round(tokens), length)
    count = whole + (ends // 2 if ends > 1 else 0)
    count = max(count + (rest > 0), min(ends, round(tokens)))
    return RowEstimate(length, count, text_tokens / (count * length) if count else 0.0)


def _packed_rows(sequence: SequenceSpec, tokens: int, lengths: NDArray[np.int64], block: int) -> int:
    """As many as the sampled documents fill in blocks of so many tokens, if all others are like them."""
    least = -(-tokens // sequence.length)
    sampled = int(lengths.sum())
    if not sampled:
        return least
    copies = max(1, min(round(tokens / sampled), _PACKED // len(lengths)))
    all_lengths = np.tile(lengths, copies)
    block_of = (np.cumsum(all_lengths) - 1) // block
    borders = np.flatnonzero(np.diff(block_of)) + 1
    rows = sum(
        pack_documents(mine, sequence.length, sequence.max_documents).n_rows for mine in np.split(all_lengths, borders)
    )
    return max(least, round(rows * tokens / (sampled * copies)))
