"""Reports what rows of some lengths would hold of a dataset without rows, from the lengths of its documents alone.

Three ways to fill rows: one document a row, cut and padded; documents one after the other, as `packing: Concat` does;
and `packing: BestFit`. Each token stream is taken for itself, as a job takes it. Memory: the lengths of one shard, and
those of a block of packed documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.dataset.dataset import Dataset, open_dataset
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.sequences.best_fit import LEAST_BLOCK, pack_documents

Lengths = NDArray[np.int64]

PADDED, CONCAT, BEST_FIT = "Padded", "Concat", "BestFit"


@dataclass(slots=True)
class RowsOfLength:
    """What rows of `length` tokens hold, filled in one way. `tokens`: of documents, in rows; `dropped`: those that are
    in no row; `cut`: documents that are in several rows, or partly in none."""

    length: int
    packing: str
    rows: int = 0
    tokens: int = 0
    dropped: int = 0
    cut: int = 0

    @property
    def utilization(self) -> float:
        """The share of the rows that is no padding; 0 where there are none."""
        return self.tokens / (self.rows * self.length) if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class LengthReport:
    """Of all splits. `documents`: those that have tokens; `tokens`: theirs, delimiters included."""

    uri: str
    documents: int
    tokens: int
    rows: tuple[RowsOfLength, ...]


def report_lengths(uri: str | os.PathLike[str], lengths: Sequence[int]) -> LengthReport:
    """What rows of each length would hold of the dataset at `uri`.

    Raises `SpecError` where there is no dataset, or one that has rows.
    """
    dataset = open_dataset(absolute_uri(uri))
    if dataset.row_length is not None:
        raise SpecError(
            "HasRows",
            f"{dataset.uri} has rows of {dataset.row_length:,} tokens; this report is of a dataset without rows",
            next_step=f"see splits[].sequences in {dataset.uri}/index.json, which says how full its rows are",
        )
    counters = [_Counter(length) for length in lengths]
    documents = tokens = 0
    for stream in _streams_of(dataset):
        for found in _lengths_of(stream):
            documents += len(found)
            tokens += int(found.sum())
            for counter in counters:
                counter.take(found)
        for counter in counters:
            counter.end_stream()
    return LengthReport(dataset.uri, documents, tokens, tuple(rows for each in counters for rows in each.found))


def _streams_of(dataset: Dataset) -> list[Stream]:
    """Each once: leading splits have one together, and with groups in paths each group has its own."""
    views = [view for name in dataset for view in (dataset[name].groups.values() or [dataset[name]])]
    return list({id(view.stream): view.stream for view in views}.values())


def _lengths_of(stream: Stream) -> Iterator[Lengths]:
    """The tokens of whole documents, a shard at a time: one that goes on in the next shard comes with that one."""
    begun = 0
    for shard in stream.shards:
        sidecar = shard.read_sidecar()
        lengths = sidecar.lengths.astype(np.int64)
        lengths[:1] += begun
        begun = int(lengths[-1]) if sidecar.continues else 0
        whole = lengths[:-1] if sidecar.continues else lengths
        yield whole[whole > 0]
    if begun:
        yield np.array([begun], np.int64)


class _Counter:
    """Fills rows of one length in three ways."""

    def __init__(self, length: int) -> None:
        self._padded, self._concat, self._packed = (RowsOfLength(length, way) for way in (PADDED, CONCAT, BEST_FIT))
        self._length = length
        self._place = 0  # in the stream
        self._waiting: list[Lengths] = []  # of documents that are not packed
        self._size = 0

    @property
    def found(self) -> tuple[RowsOfLength, ...]:
        return self._padded, self._concat, self._packed

    def take(self, lengths: Lengths) -> None:
        """The next documents of the stream."""
        length, total, n_longer = self._length, int(lengths.sum()), int((lengths > self._length).sum())
        kept = int(np.minimum(lengths, length).sum())
        self._padded.rows += len(lengths)
        self._padded.tokens += kept
        self._padded.dropped += total - kept
        self._padded.cut += n_longer
        ends = self._place + np.cumsum(lengths)
        self._concat.tokens += total
        self._concat.cut += int(((ends - lengths) // length != (ends - 1) // length).sum())
        self._packed.tokens += total
        self._packed.cut += n_longer
        self._place += total
        self._waiting.append(lengths)
        self._size += total
        if self._size >= LEAST_BLOCK:
            self._pack()

    def end_stream(self) -> None:
        """No document follows in this stream."""
        self._concat.rows += -(-self._place // self._length)
        self._place = 0
        self._pack()

    def _pack(self) -> None:
        if self._waiting:
            self._packed.rows += pack_documents(np.concatenate(self._waiting), self._length).n_rows
        self._waiting, self._size = [], 0
