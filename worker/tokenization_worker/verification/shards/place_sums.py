"""Adds up the documents and tokens of each file that the shards of a shuffled dataset hold."""

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
from tokenization_worker.verification.shards.places import Pieces


class FileSums(NamedTuple):
    """Of each file of a shard: `files` u32[k], the documents that begin there, i64[k], their tokens there, i64[k], and
    the sum of the chosen ones' hashes modulo 2^64, u64[k]."""

    files: NDArray[np.uint32]
    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    sums: U64


class PlaceSums:
    """One pass over the tokens of a shard, whose pieces are known. `one_in`: 0 sums nothing; `row_length`: of rows that
    are shuffled, else 0.
    """

    def __init__(self, pieces: Pieces, one_in: int, row_length: int = 0) -> None:
        self._pieces = pieces
        self._ends = pieces.starts + pieces.lengths
        columns = columns_of(pieces.starts - pieces.offsets, one_in, row_length)
        self._places = hash_places(columns, pieces.files, pieces.positions)
        none = np.zeros(len(pieces.files), np.bool_)
        self._chosen = are_chosen(pieces.files, pieces.positions, one_in) if one_in else none
        self._sums = np.zeros(len(pieces.files), np.uint64)

    def take(self, before: int, tokens: TokenArray) -> None:
        """The next tokens; `before`: how many there were."""
        pieces = self._pieces
        first = int(np.searchsorted(self._ends, before, side="right"))
        end = int(np.searchsorted(pieces.starts, before + len(tokens), side="left"))
        entries = np.arange(first, end)[self._chosen[first:end]]
        if not len(entries):
            return
        low = np.maximum(pieces.starts[entries], before)
        sizes = np.minimum(self._ends[entries], before + len(tokens)) - low
        at = np.arange(int(sizes.sum())) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)
        numbers = at + np.repeat(pieces.offsets[entries] - pieces.starts[entries], sizes)
        hashes = hash_tokens(np.repeat(self._places[entries], sizes), numbers, tokens[at - before])
        self._sums[entries] += np.add.reduceat(hashes, np.cumsum(sizes) - sizes)

    def by_file(self) -> FileSums:
        files, of_file = np.unique(self._pieces.files, return_inverse=True)
        counts = [np.zeros(len(files), np.int64) for _ in range(2)]
        np.add.at(counts[0], of_file, self._pieces.offsets == 0)
        np.add.at(counts[1], of_file, self._pieces.lengths)
        sums = np.zeros(len(files), np.uint64)
        np.add.at(sums, of_file, self._sums)
        return FileSums(files, counts[0], counts[1], sums)


def columns_of(begins: NDArray[np.int64], one_in: int, row_length: int) -> U64:
    """What the hashes of documents begin with: the tokens of their rows at which they begin, so that the sums of rows
    that are cut elsewhere differ. 0 where no rows are shuffled, and in a sample, which does not know `begins`.

    This decides what each row holds. The pieces in a row stand in source order, so if the end of one row stood in
    another, the end of a third one would stand in a row behind it.
    """
    if not row_length or one_in != 1:
        return np.zeros(len(begins), np.uint64)
    return (begins % row_length).astype(np.uint64)


def add_up(shards: Iterable[FileSums | None], n_files: int) -> FileSums | None:
    """The sums over all shards of a stream, for each of `n_files` files, and no other; None where those of a shard are
    not known."""
    documents, tokens = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    sums = np.zeros(n_files, np.uint64)
    for shard in shards:
        if shard is None:
            return None
        known = shard.files < n_files
        files = shard.files[known]
        documents[files] += shard.documents[known]
        tokens[files] += shard.tokens[known]
        sums[files] += shard.sums[known]
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
