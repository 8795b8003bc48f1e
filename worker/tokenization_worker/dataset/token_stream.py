"""The tokens of a dataset by number: shards, and the streams that they are cut from.

A window is copied out of memory maps of its shards: a copy of some KB costs a microsecond, and a view would keep its
shard open for as long as a program holds it. Maps are opened when they are needed. The process keeps those used last:
over all datasets at most `most_maps` of shards, and half as many of files of parts. Where shards cannot be mapped
(gs://), each read is a call. Where the format has no random access, a shard is read whole and the last two are kept.
"""

from __future__ import annotations

import itertools
import resource
import weakref
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from tokenization_worker.dataset.parts_file import PartsFile
from tokenization_worker.dataset.recently_used import RecentlyUsed
from tokenization_worker.dataset.shard import Entries, Shard
from tokenization_worker.formats.base import TokenArray
from tokenization_worker.sequences.parts import PartArray

_MOST_MAPS = 4096
"""Far below what Linux allows a process (65,530 maps)."""

_MOST_DECODED = 2
"""Shards of a format without random access that a stream keeps: a loop in order reads each once."""

_BLOCK_TOKENS = 1 << 20
"""Documents are read in blocks of about so many tokens: one call each where the store is far away."""


def most_maps() -> int:
    """How many shards this process keeps open: a map holds a file descriptor, and others need some, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_MAPS if soft == resource.RLIM_INFINITY else max(4, min(_MOST_MAPS, soft // 4))


_ShardKey = tuple[int, int]
"""The key of a stream, and the number of a shard in it."""

_maps: RecentlyUsed[_ShardKey, TokenArray] = RecentlyUsed(lambda: most_maps())

_parts_files: RecentlyUsed[_ShardKey, PartsFile] = RecentlyUsed(lambda: most_maps() // 2)
"""Each holds a file descriptor where it is mapped, else the places of its last reads."""

_stream_keys = itertools.count()


def _close_maps(stream_key: int) -> None:
    for kept in (_maps, _parts_files):
        kept.remove(lambda key: key[0] == stream_key)


class Stream:
    """A run of tokens that documents were written into, cut into shards: one split, or several leading ones.

    `are_pieces_apart`: the pieces of a document may stand apart.
    """

    def __init__(
        self,
        number: int,
        shards: tuple[Shard, ...],
        dtype: np.dtype[np.unsignedinteger],
        *,
        are_pieces_apart: bool = False,
    ) -> None:
        self.number = number
        self.are_pieces_apart = are_pieces_apart
        self.shards = shards
        self.dtype = dtype
        self._ends = [shard.end for shard in shards]
        self._is_mapped = bool(shards) and shards[0].can_be_mapped
        self._has_random_access = not shards or shards[0].has_random_access
        self._decoded: RecentlyUsed[int, TokenArray] = RecentlyUsed(lambda: _MOST_DECODED)
        self._checked: set[int] = set()
        self._checked_parts: set[int] = set()
        self._key = next(_stream_keys)
        weakref.finalize(self, _close_maps, self._key).atexit = False

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def shard_number(self, token: int) -> int:
        """Which shard holds a token."""
        return bisect_right(self._ends, token)

    def tokens(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end), a new array."""
        number = bisect_right(self._ends, start)
        if start < end <= self._ends[number]:
            return self._read(number, start, end)
        tokens = np.empty(end - start, dtype=self.dtype)
        at = start
        while at < end:
            stop = min(end, self._ends[number])
            tokens[at - start : stop - start] = self._read(number, at, stop)
            at, number = stop, number + 1
        return tokens

    def _read(self, number: int, start: int, end: int) -> TokenArray:
        """Tokens [start, end) of the stream, which lie in one shard; a new array."""
        shard = self.shards[number]
        if not self._has_random_access:
            return self._decode(number)[start - shard.start : end - shard.start].copy()
        if self._is_mapped:
            return self._map(number)[start - shard.start : end - shard.start].copy()
        if number not in self._checked:  # where shards are mapped, opening them checks
            shard.check()
            self._checked.add(number)
        return shard.read(start - shard.start, end - shard.start).copy()

    def _decode(self, number: int) -> TokenArray:
        """All tokens of a shard of a format without random access; the last ones stay in memory."""
        decoded = self._decoded.get(number)
        if decoded is None:
            decoded = self.shards[number].open()
            self._decoded.add(number, decoded)
        return decoded

    def _map(self, number: int) -> TokenArray:
        key = (self._key, number)
        opened = _maps.get(key)
        if opened is None:
            opened = np.asarray(self.shards[number].open())  # a plain array: slices of a memmap cost 3 us
            _maps.add(key, opened)
        return opened

    def read_parts(self, number: int, row: int) -> PartArray:
        """The parts of row `row` of the shard `number`, in order; a new array."""
        shard, key = self.shards[number], (self._key, number)
        with shard.mapping_damage():
            file = _parts_files.get(key)
            if file is None:
                file = shard.parts_file()
                if number not in self._checked_parts:  # one that was closed meanwhile is not checked again
                    file.check(shard.parts.crc32c)
                    self._checked_parts.add(number)
                _parts_files.add(key, file)
            return file.read(row)

    def documents(self, start: int, end: int) -> Iterator[TokenArray]:
        """The whole documents that begin in [start, end), delimiters included; `start` is a shard's first token."""
        block: list[tuple[int, int]] = []
        for span in self._spans(start, end):
            block.append(span)
            if span[1] - block[0][0] >= _BLOCK_TOKENS:
                yield from self._documents_at(block)
                block = []
        yield from self._documents_at(block)

    def end_of_document(self, number: int, entry: int, entries: Entries) -> int:
        """Where the document of entry `entry` of shard `number` ends, as a token of the stream."""
        shard = self.shards[number]
        while True:
            others = np.flatnonzero(entries.offsets[entry + 1 :] == 0)
            if len(others):
                return shard.start + int(entries.ends[entry + int(others[0])])
            end = shard.start + int(entries.ends[-1])
            number += 1
            if number == len(self.shards):
                return end
            shard = self.shards[number]
            entries, entry = shard.read_entries(), -1
            if entries.offsets[0] == 0:
                return end

    def _documents_at(self, spans: list[tuple[int, int]]) -> Iterator[TokenArray]:
        if not spans:
            return
        origin = spans[0][0]
        tokens = self.tokens(origin, spans[-1][1])
        for start, end in spans:
            yield tokens[start - origin : end - origin].copy()  # one that is kept must not keep its block

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the documents that begin in [start, end) begin and end, in order."""
        document: tuple[int, int] | None = None  # the last one that began, as far as it is known
        for shard in self.shards[self.shard_number(start) :]:
            if shard.start >= end and document is None:
                return
            entries = shard.read_entries()
            begins = np.flatnonzero(entries.offsets == 0)
            first = int(begins[0]) if len(begins) else len(entries.ends)
            if document is not None and first:  # it goes on in this shard
                document = document[0], shard.start + int(entries.ends[first - 1])
            if not len(begins):
                continue
            if document is not None:
                yield document
            starts = (shard.start + entries.starts[begins]).tolist()
            lasts = np.append(begins[1:], len(entries.ends)) - 1
            spans = list(zip(starts, (shard.start + entries.ends[lasts]).tolist(), strict=True))
            for span in spans[:-1]:
                if span[0] >= end:
                    return
                yield span
            if spans[-1][0] >= end:
                return
            if entries.continues is False:
                yield spans[-1]
                document = None
            else:
                document = spans[-1]
        if document is not None:
            yield document
