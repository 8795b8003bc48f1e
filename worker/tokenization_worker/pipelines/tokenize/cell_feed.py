"""What a shuffled shard is made of: cells of all scattered objects of its stream, merged in the order of their keys.

One cell is held at a time, in all its parts and merged. Its parts are read at once where the store is far away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.formats.base import TokenArray
from tokenization_worker.formats.cells import CellReader, Units, gather
from tokenization_worker.formats.sidecar import ScatteredDocuments
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.pipelines.tokenize.feeds import ShardContents
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShuffledShard
from tokenization_worker.sequences.order import keys_of, sort_units
from tokenization_worker.sequences.parts import NO_PARTS, PartArray

_READS_AT_ONCE = 32


class CellFeed:
    """The tokens of one shard. Raises `ScatterLost`."""

    def __init__(self, shard: ShuffledShard, readers: Sequence[CellReader], seed: int, connections: int) -> None:
        self._shard = shard
        self._readers = readers
        self._seed = seed
        self._at_once = min(_READS_AT_ONCE, connections)
        self._left_out = shard.skipped  # tokens of the first cell that belong to the shard before
        self._missing = shard.tokens
        self._lengths: list[NDArray[np.uint32]] = []
        self._files: list[NDArray[np.uint32]] = []
        self._positions: list[NDArray[np.int64]] = []
        self._skipped = 0
        self._continues = False

    def chunks(self) -> Iterator[tuple[TokenArray, PartArray]]:
        first, end = self._shard.first_cell, self._shard.end_cell
        rows = list(map_at_once(lambda reader: reader.read_rows(first, end), self._readers, self._at_once))
        for number in range(end - first):
            wanted = [(reader, row[number]) for reader, row in zip(self._readers, rows, strict=True)]
            wanted = [(reader, row) for reader, row in wanted if row["units"]]
            if wanted:
                cell = Units.join(list(map_at_once(lambda each: each[0].read_cell(each[1]), wanted, self._at_once)))
                order = sort_units(keys_of(self._seed, cell.files, cell.positions), cell.files, cell.positions)
                yield from self._take(cell, order)

    def _take(self, cell: Units, order: NDArray[np.intp]) -> Iterator[tuple[TokenArray, PartArray]]:
        """The tokens of the cell that are the shard's, whose documents are noted."""
        lengths = cell.lengths[order].astype(np.int64)
        ends = np.cumsum(lengths)
        first = int(np.searchsorted(ends, self._left_out, side="right"))
        skipped = self._left_out - (int(ends[first - 1]) if first else 0)
        stop = self._left_out + self._missing
        last = min(int(np.searchsorted(ends, stop, side="left")) + 1, len(order))
        order, lengths = order[first:last], lengths[first:last].copy()
        over = max(0, int(ends[last - 1]) - stop)
        lengths[0] -= skipped
        lengths[-1] -= over
        if not self._lengths:
            self._skipped = skipped
        self._continues = over > 0
        self._lengths.append(lengths.astype(np.uint32))
        self._files.append(cell.files[order])
        self._positions.append(cell.positions[order])
        taken = 0
        size = int(lengths.sum())
        for chunk in gather(cell, order):
            tokens = chunk[skipped:] if not taken else chunk
            tokens = tokens[: size - taken]
            taken += len(tokens)
            yield tokens, NO_PARTS
        self._left_out = 0
        self._missing -= size

    def finish(self) -> ShardContents:
        assert not self._missing, "cells hold all tokens of their stream"
        lengths = np.concatenate(self._lengths)
        sidecar = ScatteredDocuments(
            lengths,
            documents=len(lengths) - (self._skipped > 0),
            skipped=self._skipped,
            continues=self._continues,
            files=np.concatenate(self._files),
            positions=np.concatenate(self._positions),
        )
        return ShardContents(lengths, sidecar.documents, sidecar.to_bytes())
