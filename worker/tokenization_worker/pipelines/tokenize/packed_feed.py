"""Packed rows of a window: the documents that end in these tokens of the stream, packed block by block. A shard of
packed rows has those of its window; where rows are shuffled, a window is scattered.

A block of a segment holds whole documents, so the blocks that overlap the window's spans hold all of its documents.
There are two passes over the segments. The first one reads the lengths of documents, since headers say how many rows
there are; the second one reads the tokens. Both pack, which takes less than a microsecond a document. Memory: the
tokens of a block, and about 100 bytes for each of its documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.base import TokenArray
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.feeds import CHUNK_BYTES, ShardContents, SpanSource
from tokenization_worker.sequences.best_fit import block_borders, pack_documents
from tokenization_worker.sequences.parts import PART, PartArray


@dataclass(frozen=True, slots=True)
class PackingRules:
    """Rows of `row_length` tokens of `dtype` with at most `max_documents` pieces (None: any number), filled up with
    `pad_id`; documents of a full window end in `window_tokens` tokens of the stream."""

    row_length: int
    max_documents: int | None
    pad_id: int
    window_tokens: int
    dtype: np.dtype[np.unsignedinteger]

    @classmethod
    def of(cls, context: RunContext, window_tokens: int) -> Self | None:
        """None where rows are not packed, or there are none."""
        rows = context.data.output.packed_rows
        if rows is None:
            return None
        assert context.pad_id is not None, "the plan has resolved it"
        return cls(rows.length, rows.max_documents, context.pad_id, window_tokens, context.numpy_dtype)


def count_rows(sources: Iterator[SpanSource], rules: PackingRules) -> int:
    """How many rows the documents fill, from their lengths. Raises `SegmentLost`."""
    lasts, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    before = 0  # tokens of the window in earlier spans
    for source in sources:
        for token_start, found in source.lengths():
            ends = token_start + np.cumsum(found, dtype=np.int64)
            chosen = _ending_in(source, ends, found)
            lasts.append(ends[chosen] - 1 - source.span.start + before)
            lengths.append(found[chosen].astype(np.int64))
        before += source.span.end - source.span.start
    all_lasts, all_lengths = np.concatenate(lasts), np.concatenate(lengths)
    first = np.searchsorted(all_lasts, block_borders(rules.window_tokens, rules.row_length)).tolist()
    return sum(
        pack_documents(all_lengths[begin:end], rules.row_length, rules.max_documents).n_rows
        for begin, end in pairwise(first)
    )


def _ending_in(source: SpanSource, ends: NDArray[np.int64], lengths: NDArray[np.uint32]) -> NDArray[np.intp]:
    """The numbers of the documents whose last token is in the span; `ends`: of each in the span's stream."""
    return np.flatnonzero((ends > source.span.start) & (ends <= source.span.end) & (lengths > 0))


class _Ending(NamedTuple):
    """Documents that end in a span, one behind the other, each of one token or more. `files`, `positions`, `lengths`,
    `lasts` i64[n]: the last is the place of each document's last token in the shard's window."""

    tokens: TokenArray
    files: NDArray[np.int64]
    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    lasts: NDArray[np.int64]


def _take_ending(source: SpanSource, before: int) -> Iterator[_Ending]:
    """The documents of a span, block by block. `before`: tokens of the window in earlier spans."""
    for block in source.blocks():
        ends = block.token_start + np.cumsum(block.lengths, dtype=np.int64)
        chosen = _ending_in(source, ends, block.lengths)
        if len(chosen):
            first, last = int(chosen[0]), int(chosen[-1])
            begin = int(ends[first]) - int(block.lengths[first])
            yield _Ending(
                tokens=block.tokens[begin - block.token_start : int(ends[last]) - block.token_start],
                files=source.file_of_slice[block.slices[chosen]],
                positions=block.positions[chosen],
                lengths=block.lengths[chosen].astype(np.int64),
                lasts=ends[chosen] - 1 - source.span.start + before,
            )


class PackedFeed:
    """Rows of packed documents."""

    def __init__(self, sources: Iterator[SpanSource], rules: PackingRules) -> None:
        self._sources = sources
        self._rules = rules
        self._rows_a_chunk = max(1, CHUNK_BYTES // (rules.row_length * rules.dtype.itemsize))
        self._padding = np.full(rules.row_length, rules.pad_id, rules.dtype)
        self._rows = self._tokens = self._documents = 0

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        borders = block_borders(self._rules.window_tokens, self._rules.row_length)[1:].tolist()
        block = _Block(self._rules.dtype, borders[0])
        number = before = 0
        for source in self._sources:
            for ending in _take_ending(source, before):
                done = 0
                while done < len(ending.lasts):
                    end = int(np.searchsorted(ending.lasts, borders[number]))
                    block.add(ending, done, end)
                    done = end
                    if done < len(ending.lasts):
                        yield from self._pack(block)
                        number += 1
                        block.clear()
            before += source.span.end - source.span.start
        yield from self._pack(block)

    def _pack(self, block: _Block) -> Iterator[tuple[TokenArray, PartArray]]:
        """The rows of a block, some at a time."""
        length, step = self._rules.row_length, self._rows_a_chunk
        files, positions, lengths = block.documents()
        packed = pack_documents(lengths, length, self._rules.max_documents)
        parts = np.empty(len(packed.rows), PART)
        parts["position"], parts["file"] = positions[packed.documents], files[packed.documents]
        parts["row"], parts["start"] = self._rows + packed.rows, packed.starts
        parts["length"], parts["offset"] = packed.lengths, packed.offsets
        begins = (np.cumsum(lengths) - lengths)[packed.documents] + packed.offsets
        ends = begins + packed.lengths
        pads = np.where(np.diff(packed.rows, append=-1) != 0, length - packed.starts - packed.lengths, 0)
        for first in range(0, packed.n_rows, step):
            low, high = np.searchsorted(packed.rows, (first, first + step)).tolist()
            pieces: list[TokenArray] = []
            wanted = (each[low:high].tolist() for each in (begins, ends, pads))
            for begin, end, pad in zip(*wanted, strict=True):
                pieces.append(block.tokens[begin:end])
                if pad:
                    pieces.append(self._padding[:pad])
            yield np.concatenate(pieces), parts[low:high]
        self._rows += packed.n_rows
        self._tokens += int(lengths.sum())
        self._documents += len(lengths)

    def finish(self) -> ShardContents:
        entries = np.full(self._rows, self._rules.row_length, dtype=np.uint32)
        return ShardContents(entries, self._tokens, self._documents, None)


class _Block:
    """The documents of one block, while they are read. All blocks of a window use the same memory."""

    def __init__(self, dtype: np.dtype[np.unsignedinteger], size: int) -> None:
        self._room = np.empty(size, dtype)
        self._size = 0
        self._taken: list[tuple[NDArray[np.int64], ...]] = []

    def add(self, ending: _Ending, first: int, end: int) -> None:
        """Documents [first, end) of those."""
        skipped = int(ending.lengths[:first].sum())
        size = int(ending.lengths[first:end].sum())
        total = self._size + size
        if total > len(self._room):  # the first document begins before the block
            self._room.resize(total, refcheck=False)
        self._room[self._size : total] = ending.tokens[skipped : skipped + size]
        self._size = total
        self._taken.append((ending.files[first:end], ending.positions[first:end], ending.lengths[first:end]))

    def clear(self) -> None:
        """Begin the next block: no view of this one's tokens is used any more."""
        self._size = 0
        self._taken.clear()

    @property
    def tokens(self) -> TokenArray:
        return self._room[: self._size]

    def documents(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Files, positions and lengths."""
        if not self._taken:
            return (np.empty(0, np.int64),) * 3
        files, positions, lengths = (np.concatenate(each) for each in zip(*self._taken, strict=True))
        return files, positions, lengths
