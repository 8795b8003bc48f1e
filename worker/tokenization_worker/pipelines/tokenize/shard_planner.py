"""Plans shards, and windows of a shuffle: which spans of which segments make which. Pure; exactness depends on it.

Receipts come in any order. A file counts once every range that holds a span of it has its receipt: only
then is it known whether the file was read to its end or is dropped whole. The longest prefix of such files
fixes token positions, and every shard that lies inside the prefix can be built. What a shard is made of
depends on the receipts' counts and never on the order in which they came.

Where groups are in paths, the files of each group make runs of their own: behind its last file its rests are shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

import numpy as np
from msgspec.structs import replace

from tokenization_worker.api.data import Packing, Scope, SequenceSpec
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.output.ledger.receipts import RangeReceipt, Span
from tokenization_worker.output.plan_file import Cut
from tokenization_worker.planning.splits import ShardName, Streams

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to build: its name and the spans that hold its tokens, in order."""

    name: ShardName
    spans: tuple[Span, ...]

    @property
    def tokens(self) -> int:
        """Of documents."""
        return sum(span.end - span.start for span in self.spans)

    @property
    def stored_tokens(self) -> int:
        """With padding."""
        return sum(span.stored for span in self.spans)


class StreamCutter(ABC, Generic[P]):
    """Cuts streams into parts of `part_tokens` tokens, each exactly once, per stream in order.

    `sequence`: the rows, whose padding counts; rows of packed documents are padded later, in their blocks.
    `groups`: names and numbers of files, in order, of those that make runs of their own; () where all is one run.
    """

    def __init__(
        self,
        cut: Cut,
        n_files: int,
        streams: Streams,
        part_tokens: int,
        sequence: SequenceSpec | None = None,
        groups: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._cut = cut
        self._streams = streams
        self._part_tokens = part_tokens
        pads_streams = sequence is not None and sequence.packing is Packing.CONCAT  # blocks pad packed rows
        self._row_length = sequence.length if sequence is not None and pads_streams else 1
        self._pads_files = sequence is not None and sequence.scope is Scope.FILE
        # Files in order own runs of slices: slices [file_slice[f], file_slice[f + 1]).
        self._file_slice = np.searchsorted(cut.slice_file, np.arange(n_files + 1))
        self._slice_range = (np.searchsorted(cut.range_slice, np.arange(len(cut.slice_file)), "right") - 1).astype("i4")
        self._slices_missing = np.diff(self._file_slice)  # of each file: slices whose range has no receipt yet
        self._receipts: dict[int, RangeReceipt] = {}  # of ranges that hold a span of the next file or a later one
        self._position: dict[int, list[int]] = {}  # tokens of each of these that lie before the next file
        self._next_file = 0
        self._n_files = n_files
        self._groups = [name for name, _ in groups] or [""]
        self._run_ends = list(accumulate(count for _, count in groups)) or [n_files]
        self._run = 0
        self._open: list[deque[Span]] = [deque() for _ in range(streams.count)]
        self._open_tokens = [0] * streams.count
        self.counts = [0] * (streams.count * len(self._groups))
        """Of each stream of the first group, then of each of the next one."""

    def add(self, receipt: RangeReceipt) -> list[P]:
        """Take one more range's receipt; returns the parts that are known now."""
        self._receipts[receipt.range_id] = receipt
        first, end = self._cut.range_slice[receipt.range_id : receipt.range_id + 2].tolist()
        np.subtract.at(self._slices_missing, self._cut.slice_file[first:end], 1)
        plans: list[P] = []
        while self._next_file < self._n_files and not self._slices_missing[self._next_file]:
            self._append(self._next_file)
            if self._pads_files:
                self._pad_rows()
            self._next_file += 1
            for stream in range(self._streams.count):
                plans.extend(self._full_parts(stream))
            if self._next_file == self._run_ends[self._run]:
                plans.extend(self._close_run())
        return plans

    def _close_run(self) -> list[P]:
        """The last parts of the group."""
        self._pad_rows()
        rests = [(stream, rest) for stream, rest in enumerate(self._open_tokens) if rest]
        plans = [self._take(stream, rest) for stream, rest in rests]
        self._run += 1
        return plans

    @property
    def is_complete(self) -> bool:
        """Every file is accounted for, so every part has been planned."""
        return self._run == len(self._groups)

    def _file_slices(self, file: int) -> Iterator[tuple[int, int]]:
        """(range, slice's number within the range) of the file's slices."""
        for i in range(self._file_slice[file], self._file_slice[file + 1]):
            range_id = int(self._slice_range[i])
            yield range_id, i - int(self._cut.range_slice[range_id])

    def _append(self, file: int) -> None:
        """Put the file's tokens at the end of its streams, unless one of its slices was not read."""
        results = [(r, i, self._receipts[r].slices[i]) for r, i in self._file_slices(file)]
        is_kept = all(result.is_read for _, _, result in results)
        for range_id, number, result in results:
            # A slice that was read is in the segment even when another slice of its file was corrupt.
            position = self._position.setdefault(range_id, [0] * self._streams.count)
            for stream, count in enumerate(result.tokens):
                if is_kept and count:
                    self._append_span(Span(range_id, stream, position[stream], position[stream] + count))
                position[stream] += count
            if number == len(self._receipts[range_id].slices) - 1:
                del self._position[range_id], self._receipts[range_id]

    def _append_span(self, span: Span) -> None:
        self._open_tokens[span.stream] += span.end - span.start
        spans = self._open[span.stream]
        last = spans[-1] if spans else None
        if last is not None and last.range_id == span.range_id and last.end == span.start and not last.pad:
            span = Span(span.range_id, span.stream, spans.pop().start, span.end)
        spans.append(span)

    def _pad_rows(self) -> None:
        """Fill the last row of every stream."""
        for stream, spans in enumerate(self._open):
            pad = -self._open_tokens[stream] % self._row_length
            if pad:
                spans.append(replace(spans.pop(), pad=pad))
                self._open_tokens[stream] += pad

    def _full_parts(self, stream: int) -> Iterator[P]:
        while self._open_tokens[stream] >= self._part_tokens:
            yield self._take(stream, self._part_tokens)

    def _take(self, stream: int, tokens: int) -> P:
        taken: list[Span] = []
        missing = tokens
        spans = self._open[stream]
        while missing:
            span = spans.popleft()
            if span.end - span.start > missing:
                spans.appendleft(Span(span.range_id, stream, span.start + missing, span.end, span.pad))
                span = Span(span.range_id, stream, span.start, span.start + missing)
            taken.append(span)
            missing -= span.stored
        self._open_tokens[stream] -= tokens
        first = self._run * self._streams.count
        number = self.counts[first + stream]
        self.counts[first + stream] += 1
        return self._make(first, stream, number, tuple(taken))

    @abstractmethod
    def _make(self, first: int, stream: int, number: int, spans: tuple[Span, ...]) -> P:
        """Part `number` of a stream of the group whose first stream is `first`, counted over all groups."""

    def first_needed_range(self) -> int:
        """All tokens of the ranges before this one are in planned parts."""
        needed = [spans[0].range_id for spans in self._open if spans]
        if self._next_file < self._n_files:
            needed.append(int(self._slice_range[self._file_slice[self._next_file]]))
        return min(needed, default=len(self._cut.range_slice) - 1)


class ShardPlanner(StreamCutter[ShardPlan]):
    """Turns receipts into the plans of shards in the order of the source."""

    @property
    def shard_counts(self) -> list[int]:
        """Of each stream of the first group, then of each of the next one, as far as they are known."""
        return self.counts

    def _make(self, first: int, stream: int, number: int, spans: tuple[Span, ...]) -> ShardPlan:
        before = sum(self.counts[:first])
        return ShardPlan(self._streams.name_shard(stream, number, self._groups[self._run], before), spans)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window of a stream to scatter: the documents whose first token is in its spans."""

    key: ScatterKey
    spans: tuple[Span, ...]


class WindowPlanner(StreamCutter[WindowPlan]):
    """Turns receipts into the windows of streams that are shuffled."""

    def _make(self, first: int, stream: int, number: int, spans: tuple[Span, ...]) -> WindowPlan:
        return WindowPlan(ScatterKey(first + stream, number), spans)
