"""Adds up the documents and tokens of each file, from the shards' side and from the source's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.output import layout
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.formats.base import TokenArray
from tokenization_worker.verification.order import U64, are_chosen, hash_places, hash_tokens
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.scattered import ScatteredSidecar


class FileSums(NamedTuple):
    """Of each file of a shard: `files` u32[k], the documents that begin there, i64[k], their tokens there, i64[k], and
    the sum of the chosen ones' hashes modulo 2^64, u64[k]."""

    files: NDArray[np.uint32]
    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    sums: U64


class PlaceSums:
    """One pass over the tokens of a shard, whose sidecar names the place of each document. `one_in`: 0 sums nothing."""

    def __init__(self, sidecar: ScatteredSidecar, one_in: int) -> None:
        self._sidecar = sidecar
        self._places = hash_places(0, sidecar.files, sidecar.positions)
        none = np.zeros(len(sidecar.files), np.bool_)
        self._chosen = are_chosen(sidecar.files, sidecar.positions, one_in) if one_in else none
        self._sums = np.zeros(len(sidecar.files), np.uint64)
        self._starts = sidecar.ends - sidecar.lengths
        self._starts[:1] -= sidecar.skipped  # where the first document would begin

    def take(self, before: int, tokens: TokenArray) -> None:
        """The next tokens; `before`: how many there were."""
        first, end = np.searchsorted(self._sidecar.ends, (before, before + len(tokens) - 1), side="right").tolist()
        entries = np.arange(first, min(end + 1, len(self._chosen)))
        entries = entries[self._chosen[entries]]
        if not len(entries):
            return
        low = np.maximum(self._sidecar.ends[entries] - self._sidecar.lengths[entries], before)
        high = np.minimum(self._sidecar.ends[entries], before + len(tokens))
        sizes = high - low
        at = np.arange(int(sizes.sum())) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)
        numbers = at - np.repeat(self._starts[entries], sizes)
        hashes = hash_tokens(np.repeat(self._places[entries], sizes), numbers, tokens[at - before])
        self._sums[entries] += np.add.reduceat(hashes, np.cumsum(sizes) - sizes)

    def by_file(self) -> FileSums:
        files, of_file = np.unique(self._sidecar.files, return_inverse=True)
        begins = np.ones(len(of_file), np.int64)
        begins[:1] = not self._sidecar.skipped
        counts = [np.zeros(len(files), np.int64) for _ in range(2)]
        np.add.at(counts[0], of_file, begins)
        np.add.at(counts[1], of_file, self._sidecar.lengths.astype(np.int64))
        sums = np.zeros(len(files), np.uint64)
        np.add.at(sums, of_file, self._sums)
        return FileSums(files, counts[0], counts[1], sums)


def add_up(shards: Iterable[FileSums | None], n_files: int) -> FileSums | None:
    """The sums over all shards of a stream, for each of `n_files` files; None where those of a shard are not known, or
    name another file."""
    documents, tokens = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    sums = np.zeros(n_files, np.uint64)
    for shard in shards:
        if shard is None or int(shard.files.max(initial=0)) >= n_files:
            return None
        documents[shard.files] += shard.documents
        tokens[shard.files] += shard.tokens
        sums[shard.files] += shard.sums
    return FileSums(np.arange(n_files, dtype=np.uint32), documents, tokens, sums)


def compare_counts(
    files: Sequence[FileClaim], stream: int, found: FileSums, *, is_delimited: bool
) -> Iterator[Finding]:
    """Where the shards of a stream hold other counts of a file's documents and tokens than the files table says.

    Without delimiters a document of an empty text has no tokens, and so no place in a shard.
    """
    for file in files:
        number = stream - file.first_stream
        if not 0 <= number < len(file.tokens):
            continue
        claimed = (file.documents[number], file.tokens[number])
        there = (int(found.documents[file.number]), int(found.tokens[file.number]))
        if there[1] != claimed[1] or there[0] > claimed[0] or (is_delimited and there[0] < claimed[0]):
            words = [f"{documents:,} documents and {tokens:,} tokens" for documents, tokens in (claimed, there)]
            expected, found_words = words[0], f"{words[1]} in the shards of stream {stream}"
            yield Finding(Fault.FILE_COUNTS, expected, found_words, layout.FILES_TABLE, uri=file.uri)


def sum_of(file: int, positions: Sequence[int], documents: Sequence[NDArray[np.int64]]) -> int:
    """The sum over documents of one file, by their tokens."""
    if not documents:
        return 0
    lengths = np.array([len(tokens) for tokens in documents], np.int64)
    places = hash_places(0, np.full(len(lengths), file), np.array(positions, np.int64))
    numbers = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = np.concatenate(documents)
    return int(hash_tokens(np.repeat(places, lengths), numbers, ids).sum(dtype=np.uint64))
