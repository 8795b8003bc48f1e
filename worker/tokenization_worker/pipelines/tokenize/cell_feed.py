"""What a shuffled shard is made of: cells of all scattered objects of its stream, merged in the order of their keys.

Some cells are held at a time, in all objects and merged: as many as together are no larger than one may be. They are
read at once where the store is far away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.base import TokenArray
from tokenization_worker.formats.cells import CellReader
from tokenization_worker.formats.sidecar import ScatteredDocuments
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.pipelines.tokenize.feeds import Run, ShardContents, padding
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShuffledShard
from tokenization_worker.sequences.parts import NO_PARTS, PART, PartArray, Pieces
from tokenization_worker.sequences.units import OrderedUnits, Units

_READS_AT_ONCE = 32

HELD_BYTES = 32 << 20
"""Of cells that are read together; a larger one is read alone."""


class ShuffledUnits:
    """The units of one shard in their order. Raises `ScatterLost`."""

    def __init__(self, shard: ShuffledShard, readers: Sequence[CellReader], seed: int, connections: int) -> None:
        self._shard = shard
        self._readers = readers
        self._seed = seed
        self._at_once = min(_READS_AT_ONCE, connections)
        self._missing = shard.tokens
        self._taken = 0  # units
        self.is_cut = False
        """Whether the last document goes on in the next shard."""

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        """Tokens with their parts, whose `row` is the number of the unit in the shard."""
        first, end = self._shard.first_cell, self._shard.end_cell
        left_out = self._shard.skipped  # tokens of the first cell that belong to the shard before
        rows = list(map_at_once(lambda reader: reader.read_rows(first, end), self._readers, self._at_once))
        for begin, stop in _batches(rows, self._readers[0].dtype.itemsize):
            wanted = [(reader, row[begin:stop]) for reader, row in zip(self._readers, rows, strict=True)]
            wanted = [(reader, row[row["parts"] > 0]) for reader, row in wanted]
            wanted = [(reader, row) for reader, row in wanted if len(row)]
            if wanted:
                read = map_at_once(lambda each: each[0].read_cells(each[1]), wanted, self._at_once)
                yield from self._take(Units.join([cell for cells in read for cell in cells]), left_out)
                left_out = 0
        assert not self._missing, "cells hold all tokens of their stream"

    def _take(self, cells: Units, left_out: int) -> Iterator[tuple[TokenArray, PartArray]]:
        """Those of the units that are the shard's. A row is never cut, a document is at the shard's ends."""
        units = OrderedUnits(cells, cells.sort(self._seed)[0])
        ends = np.cumsum(units.lengths)
        stop = left_out + self._missing
        first = int(np.searchsorted(ends, left_out, side="right"))
        last = min(int(np.searchsorted(ends, stop, side="left")) + 1, len(ends))
        skipped = left_out - (int(ends[first - 1]) if first else 0)
        over = max(0, int(ends[last - 1]) - stop)
        self.is_cut = over > 0
        begin = first
        for tokens, end in units.tokens(first, last):
            parts = units.parts(begin, end)
            parts["row"] += np.uint32(self._taken)
            self._taken += end - begin
            if skipped and begin == first:
                parts["offset"][0] += skipped
                parts["length"][0] -= skipped
                tokens = tokens[skipped:]
            if over and end == last:
                parts["length"][-1] -= over
                tokens = tokens[:-over]
            self._missing -= len(tokens)
            yield tokens, parts
            begin = end


def _batches(rows: Sequence[NDArray[np.void]], itemsize: int) -> Iterator[tuple[int, int]]:
    """Cells [begin, stop) that are read together; `rows`: of each object the footer's rows of all cells."""
    sizes = sum((row["parts"] * PART.itemsize + row["tokens"] * itemsize for row in rows), np.zeros(len(rows[0]), "i8"))
    begin = held = 0
    for number, size in enumerate(sizes.tolist()):
        if held and held + size > HELD_BYTES:
            yield begin, number
            begin, held = number, 0
        held += size
    yield begin, len(sizes)


class ShuffledRunFeed:
    """One run of shuffled documents."""

    def __init__(self, units: ShuffledUnits) -> None:
        self._units = units
        self._parts: list[PartArray] = []

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        for tokens, parts in self._units.chunks():
            self._parts.append(parts)
            yield tokens, NO_PARTS

    def finish(self) -> ShardContents:
        parts = np.concatenate(self._parts)
        sidecar = ScatteredDocuments(
            parts["length"],
            documents=_count_documents(parts),
            skipped=int(parts["offset"][0]),
            continues=self._units.is_cut,
            files=parts["file"],
            positions=parts["position"].astype(np.int64),
        )
        tokens = int(sidecar.lengths.sum(dtype=np.int64))
        return ShardContents(sidecar.lengths, tokens, sidecar.documents, sidecar.to_bytes())


class ShuffledRowFeed:
    """Shuffled rows of `length` tokens."""

    def __init__(self, units: ShuffledUnits, length: int) -> None:
        self._units = units
        self._length = length
        self._stored = self._tokens = self._documents = 0

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        for tokens, parts in self._units.chunks():
            self._stored += len(tokens)
            self._tokens += int(parts["length"].sum(dtype=np.int64))
            self._documents += _count_documents(parts)
            yield tokens, parts

    def finish(self) -> ShardContents:
        entries = np.full(self._stored // self._length, self._length, dtype=np.uint32)
        return ShardContents(entries, self._tokens, self._documents, None)


def shuffled_runs(units: ShuffledUnits, pad: int) -> Iterator[Run]:
    """Shuffled documents of which rows are made, and the padding of the last one."""
    for tokens, parts in units.chunks():
        files, positions, lengths, offsets = (
            parts[name].astype(np.int64) for name in ("file", "position", "length", "offset")
        )
        yield Run(tokens, Pieces(files, positions, lengths, offsets), 0)
    yield padding(pad)


def _count_documents(parts: PartArray) -> int:
    """Those that begin there."""
    return int(np.count_nonzero(parts["offset"] == 0))
