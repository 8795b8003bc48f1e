"""Plans a shuffled run: windows to scatter, and shards by the rank of their units. Pure.

Shards of a stream are known when all of its windows are scattered: their receipts say how many tokens each cell has,
and the sums of these cut the stream into shards. No token passes through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import OutputSpec
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.receipts import RangeReceipt, ScatterReceipt, Span
from tokenization_worker.output.plan_file import Cut, Scattering
from tokenization_worker.pipelines.tokenize.shard_planner import WindowPlan, WindowPlanner
from tokenization_worker.planning.splits import ShardName, Streams


@dataclass(frozen=True, slots=True)
class ShuffledShard:
    """One shard to build: `tokens` of the cells [first_cell, end_cell) of a stream, behind `skipped` tokens of them.
    Tokens of rows count with their padding. `stored_tokens`: with the padding that the shard adds."""

    name: ShardName
    stream: int
    tokens: int
    stored_tokens: int
    skipped: int
    first_cell: int
    end_cell: int

    @property
    def spans(self) -> tuple[Span, ...]:
        """None: what it is made of follows from the plan's cells."""
        return ()


class ShufflePlanner:
    """Turns receipts of ranges into windows, and receipts of windows into shards, each exactly once."""

    def __init__(
        self,
        cut: Cut,
        n_files: int,
        streams: Streams,
        output: OutputSpec,
        scattering: Scattering,
        groups: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._streams = streams
        self._shard_tokens = output.shard_tokens
        self._row_length = 1 if output.sequence is None else output.sequence.length
        self._groups = [name for name, _ in groups] or [""]
        tokens, rows = scattering.window_tokens, output.shuffled_rows
        self._windows = WindowPlanner(cut, n_files, streams, tokens, rows, groups)
        n_streams = streams.count * len(self._groups)
        self._tokens = [0] * n_streams  # of what is scattered, padding of rows included
        self._cells: list[NDArray[np.int64]] = [np.zeros(scattering.n_cells, np.int64) for _ in range(n_streams)]
        self._scattered: list[set[int]] = [set() for _ in range(n_streams)]
        self._is_cut = [False] * n_streams

    def add(self, receipt: RangeReceipt) -> list[WindowPlan]:
        """Take one more range's receipt; returns the windows that can be scattered now."""
        return self._windows.add(receipt)

    def add_scatter(self, receipt: ScatterReceipt) -> None:
        """Take one more window's receipt."""
        if receipt.number not in self._scattered[receipt.stream]:
            self._scattered[receipt.stream].add(receipt.number)
            self._cells[receipt.stream] += receipt.cells
            self._tokens[receipt.stream] += receipt.tokens

    def take_streams(self) -> Iterator[tuple[int, list[ShuffledShard]]]:
        """The streams all of whose windows are scattered, each once, with their shards; those of a group when the
        shards of all groups before are known, behind which its shards count on."""
        if not self._windows.is_complete:
            return
        for first in range(0, len(self._is_cut), self._streams.count):
            streams = range(first, first + self._streams.count)
            for stream in streams:
                if not self._is_cut[stream] and len(self._scattered[stream]) == self._windows.counts[stream]:
                    self._is_cut[stream] = True
                    yield stream, list(self._cut(stream))
            if not all(self._is_cut[first : streams.stop]):
                return

    def _cut(self, stream: int) -> Iterator[ShuffledShard]:
        ends = np.cumsum(self._cells[stream])
        total = self._tokens[stream]
        group, split = divmod(stream, self._streams.count)
        before = sum(self.shard_counts[: group * self._streams.count])
        for number in range(self.shard_counts[stream]):
            start = number * self._shard_tokens
            end = min(start + self._shard_tokens, total)
            first, last = np.searchsorted(ends, [start, end - 1], side="right").tolist()
            skipped = start - (int(ends[first - 1]) if first else 0)
            name = self._streams.name_shard(split, number, self._groups[group], before)
            stored = end - start + (start - end) % self._row_length
            yield ShuffledShard(name, stream, end - start, stored, skipped, first, last + 1)

    def windows_of(self, stream: int) -> tuple[ScatterKey, ...]:
        """All of a stream, once they are known."""
        return tuple(ScatterKey(stream, number) for number in range(self._windows.counts[stream]))

    @property
    def shard_counts(self) -> list[int]:
        """Of each stream, as far as its windows are scattered."""
        return [-(-tokens // self._shard_tokens) for tokens in self._tokens]

    @property
    def windows_done(self) -> int:
        return sum(map(len, self._scattered))

    @property
    def windows(self) -> int | None:
        """Of all streams; None until they are known."""
        return sum(self._windows.counts) if self._windows.is_complete else None

    @property
    def is_complete(self) -> bool:
        """Whether all shards have been planned."""
        return all(self._is_cut)

    def first_needed_range(self) -> int:
        """All tokens of the ranges before this one are in planned windows."""
        return self._windows.first_needed_range()
