"""What a shard is made of: its tokens in order, read from segments, and the documents or rows that they are.

A feed gives chunks that stay in the processor's cache while every format and checksum sees them. What it has found out
on the way about documents is known when the last chunk was taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.base import LengthArray, TokenArray
from tokenization_worker.formats.segment import Block, SegmentReader
from tokenization_worker.formats.sidecar import DocumentsBuilder
from tokenization_worker.output import layout
from tokenization_worker.output.ledger.receipts import Span
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.sequences.parts import NO_PARTS, NO_PIECES, PartArray, Pieces
from tokenization_worker.sequences.row_buffer import RowBuffer
from tokenization_worker.storage.base import Store

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SpanSource:
    """A span of a shard, where to read it, and the file of each slice of its range, i64[n_slices]."""

    span: Span
    segment: SegmentReader
    file_of_slice: NDArray[np.int64]

    def blocks(self) -> Iterator[Block]:
        return self.segment.blocks(self.span.stream, self.span.start, self.span.end)

    def lengths(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Of each block where it begins in the stream, and the tokens of its documents."""
        return self.segment.lengths(self.span.stream, self.span.start, self.span.end)

    def tokens_of(self, block: Block) -> TokenArray:
        """Those of the block that are the shard's."""
        first = max(0, self.span.start - block.token_start)
        return block.tokens[first : self.span.end - block.token_start]


def open_sources(
    store: Store,
    context: RunContext,
    spans: Sequence[Span],
    segment_digests: Sequence[str],
    slice_files: Sequence[Sequence[int]],
) -> Iterator[SpanSource]:
    """The spans with their segments, which are opened one after the other. Raises `SegmentLost`."""
    for span, digest, files in zip(spans, segment_digests, slice_files, strict=True):
        segment = SegmentReader(
            store,
            layout.segment_path(context.epoch, span.range_id),
            range_id=span.range_id,
            digest=digest,
            dtype=context.numpy_dtype,
        )
        yield SpanSource(span, segment, np.array(files, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class ShardContents:
    """What a feed knows at its end. `entries` u32[n]: tokens of each row, or of each document in the shard; `tokens`:
    of documents; `documents`: that begin in it; `sidecar`: the bytes of the documents sidecar, None for rows, which
    have parts."""

    entries: LengthArray
    tokens: int
    documents: int
    sidecar: bytes | None


class ShardFeed(Protocol):
    """A shard's tokens."""

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        """Tokens as `ShardWriter.write` takes them. Raises `SegmentLost`."""
        ...

    def finish(self) -> ShardContents:
        """After the last chunk."""
        ...


class RunFeed:
    """One run of tokens."""

    def __init__(self, sources: Iterator[SpanSource]) -> None:
        self._sources = sources
        self._documents = DocumentsBuilder()

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        for source in self._sources:
            for block in source.blocks():
                self._documents.add(block, source.span.start, source.span.end, source.file_of_slice)
                data = source.tokens_of(block)
                step = CHUNK_BYTES // data.itemsize
                for start in range(0, len(data), step):
                    yield data[start : start + step], NO_PARTS

    def finish(self) -> ShardContents:
        documents = self._documents.finish()
        tokens = int(documents.lengths.sum(dtype=np.int64))
        return ShardContents(documents.lengths, tokens, documents.documents, documents.to_bytes())


class Run(NamedTuple):
    """Tokens, the pieces of documents that they are, and how many tokens of padding follow them."""

    tokens: TokenArray
    pieces: Pieces
    pad: int


def padding(count: int) -> Run:
    """Nothing but padding."""
    return Run(np.empty(0, np.uint8), NO_PIECES, count)


class RowFeed:
    """Rows of `length` tokens, made of runs. `pad_id` is behind runs that say so."""

    def __init__(self, runs: Iterator[Run], length: int, pad_id: int, dtype: np.dtype[np.unsignedinteger]) -> None:
        self._runs = runs
        self._length = length
        self._pad_id = pad_id
        self._buffer = RowBuffer(length, dtype)
        self._rows_a_chunk = max(1, CHUNK_BYTES // (length * dtype.itemsize))
        self._tokens = self._documents = 0

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        for tokens, pieces, pad in self._runs:
            self._tokens += len(tokens)
            self._documents += int(np.count_nonzero(pieces.offsets == 0))
            if len(tokens):
                self._buffer.add(tokens, pieces)
                yield from self._whole_rows()
            if pad:
                self._buffer.add_padding(pad, self._pad_id)
                yield from self._whole_rows()

    def _whole_rows(self) -> Iterator[tuple[TokenArray, PartArray]]:
        first = self._buffer.rows
        tokens, parts = self._buffer.take()
        step = self._rows_a_chunk
        for row in range(0, len(tokens) // self._length, step):
            start, end = np.searchsorted(parts["row"], (first + row, first + row + step))
            yield tokens[row * self._length : (row + step) * self._length], parts[start:end]

    def finish(self) -> ShardContents:
        entries = np.full(self._buffer.rows, self._length, dtype=np.uint32)
        return ShardContents(entries, self._tokens, self._documents, None)


def runs_of(sources: Iterator[SpanSource]) -> Iterator[Run]:
    """The blocks of spans, as far as they lie in the spans."""
    for source in sources:
        for block in source.blocks():
            yield Run(source.tokens_of(block), _pieces_of(block, source), 0)
        if source.span.pad:
            yield padding(source.span.pad)


def _pieces_of(block: Block, source: SpanSource) -> Pieces:
    """The block's documents, as far as they lie in the span."""
    start, end = source.span.start, source.span.end
    ends = block.token_start + np.cumsum(block.lengths, dtype=np.int64)
    starts = ends - block.lengths
    inside = np.flatnonzero((starts < end) & (ends > start) & (block.lengths > 0))
    starts, ends = starts[inside], ends[inside]
    first = np.maximum(starts, start)
    return Pieces(
        files=source.file_of_slice[block.slices[inside]],
        positions=block.positions[inside],
        lengths=np.minimum(ends, end) - first,
        offsets=first - starts,
    )
