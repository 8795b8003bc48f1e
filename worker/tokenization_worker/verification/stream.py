"""Reads a stream's tokens and document borders from shards, and from sidecars or parts.

Positions count tokens of the stream from 0, over all its shards, padding included. The borders between shards come
from the shards table; that they are where the files have them is checked by `shards`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.claims import ShardClaim, shard_ends
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.formats.base import ReadRange, TokenArray
from tokenization_worker.verification.formats.registry import decoder_of, preferred_format
from tokenization_worker.verification.shards.documents import NoDocuments, ShardDocuments, Source
from tokenization_worker.verification.shards.parts import parse_parts
from tokenization_worker.verification.shards.sidecar import parse_sidecar

MISSING = -1
"""Stands for a token that the shard should have and has not: it is cut."""

UNKNOWN = -2
"""Stands for a token of a shard that is not there at all: that is one finding, not one of every document in it."""

Tokens = NDArray[np.int64]


class StreamDocument(NamedTuple):
    """A document's tokens [start, end) in its stream; `source`: its place, where that is known of every document."""

    start: int
    end: int
    source: Source | None


class Stream:
    """Reads one stream; keeps the sidecars or parts of the last two shards in memory, and of a format without random
    access their tokens."""

    def __init__(self, store: Store, facts: Facts, number: int) -> None:
        self._store = store
        self._dtype = facts.dtype
        self._format = preferred_format(facts.formats)
        self._decoder = decoder_of(self._format)
        self._whole_shard = lru_cache(maxsize=2)(self._read_whole)
        self.shards = facts.streams[number]
        self._ends = shard_ends(self.shards)
        self.row_length = facts.row_length
        self.documents_of = lru_cache(maxsize=2)(self._read_documents)

    def shards_of(self, start: int, end: int) -> Iterator[ShardClaim]:
        """The shards that hold tokens of [start, end)."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        for shard in self.shards[first:]:
            if shard.start >= end:
                return
            yield shard

    def place(self, position: int) -> tuple[str | None, int | None]:
        """The shard that holds the token, and its number there; past the end: the end of the last shard."""
        if not self.shards:
            return None, None
        number = int(np.searchsorted(self._ends, position, side="right"))
        shard = self.shards[min(number, len(self.shards) - 1)]
        return shard.path, position - shard.start

    def tokens(self, start: int, end: int) -> Tokens:
        """Tokens [start, end), `MISSING` where a shard is cut, `UNKNOWN` where there is none; fewer only past the
        stream's end.
        """
        parts = [
            self._shard_tokens(shard, max(start, shard.start) - shard.start, min(end, shard.end) - shard.start)
            for shard in self.shards_of(start, end)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _shard_tokens(self, shard: ShardClaim, start: int, end: int) -> Tokens:
        try:
            if self._decoder.has_random_access:
                there = self._decoder.read(self._reader_of(shard), start, end, self._dtype)
            else:
                there = self._whole_shard(shard)[start:end]
        except NotFound:
            return np.full(end - start, UNKNOWN, dtype=np.int64)
        tokens = np.full(end - start, MISSING, dtype=np.int64)
        tokens[: len(there)] = there
        return tokens

    def _read_whole(self, shard: ShardClaim) -> TokenArray:
        return self._decoder.read(self._reader_of(shard), 0, shard.stored, self._dtype)

    def _reader_of(self, shard: ShardClaim) -> ReadRange:
        files = [file for file in shard.files if file.format == self._format]
        return lambda number, first, last: self._store.read_range(files[number].path, first, last)

    def read_documents(self, shard: ShardClaim) -> bytes:
        """The file that says which documents the shard holds; raises `NoDocuments`."""
        try:
            return self._store.read(shard.documents_path)
        except NotFound as error:
            raise NoDocuments("it is missing") from error

    def _read_documents(self, shard: ShardClaim) -> ShardDocuments:
        data = self.read_documents(shard)
        return parse_parts(data, self.row_length) if self.row_length else parse_sidecar(data)

    def documents(self, start: int, end: int) -> Iterator[StreamDocument]:
        """Every document of one token or more in [start, end), by the sidecars or parts.

        Raises `NoDocuments` also where no document begins at `start`.
        """
        last: tuple[int, Source | None] | None = None
        for shard in self.shards_of(start, end):
            for begins in self.documents_of(shard).begins():
                tokens = shard.start + begins.tokens
                inside = (tokens >= start) & (tokens < end)
                for begin, source in zip(tokens[inside].tolist(), begins.sources(inside), strict=True):
                    if last is not None:
                        yield StreamDocument(last[0], begin, last[1])
                    elif begin != start:
                        raise NoDocuments(f"no document begins at token {start - shard.start:,} of {shard.path}")
                    last = begin, source
        if last is not None:
            yield StreamDocument(last[0], end, last[1])
        elif start < end:
            raise NoDocuments(f"no document begins at token {start:,} of the stream")


def difference(expected: Tokens, found: Tokens) -> NDArray[np.int64]:
    """Where tokens differ, as far as both go; a token that is not known differs from none."""
    both = min(len(expected), len(found))
    return np.flatnonzero((expected[:both] != found[:both]) & (found[:both] != UNKNOWN))
