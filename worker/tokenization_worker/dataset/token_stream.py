"""The tokens of a dataset by number: shards, and the streams that they are cut from.

A window is copied out of memory maps of its shards: a copy of some KB costs a microsecond, and a view would keep its
shard open for as long as a program holds it. Maps are opened when they are needed; the process keeps those used last,
at most `most_maps` over all datasets. Where shards cannot be mapped (gs://), each read is a call.
"""

from __future__ import annotations

import itertools
import os
import resource
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np

from tokenization_worker.errors import DataError
from tokenization_worker.formats.base import ShardReader, ShardShape, ShardUnreadable, StoredFile, TokenArray
from tokenization_worker.formats.registry import format_of
from tokenization_worker.formats.sidecar import ShardDocuments
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.storage.base import NotFound, Store

_MOST_MAPS = 4096
"""Far below what Linux allows a process (65,530 maps)."""

_BLOCK_TOKENS = 1 << 20
"""Documents are read in blocks of about so many tokens: one call each where the store is far away."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard in one format: `files` are its files with their sizes in bytes, the main file first.

    `tokens` and `documents` (that begin in it) are counts; `start`: its first token's number in the stream that its
    split is cut from; `documents_sha256`: of its documents sidecar.
    """

    _store: Store
    format: str
    files: tuple[tuple[str, int], ...]
    dtype: np.dtype[np.unsignedinteger]
    split: str
    index: int
    tokens: int
    documents: int
    start: int
    documents_sha256: str

    @property
    def path(self) -> str:
        """Of the main file."""
        return self.files[0][0]

    @property
    def end(self) -> int:
        return self.start + self.tokens

    @property
    def uri(self) -> str:
        return f"{self._store.uri}/{self.path}"

    @property
    def can_be_mapped(self) -> bool:
        return self._store.local_path("") is not None

    def open(self) -> TokenArray:
        """All tokens, u16 or u32[tokens]: a read-only memory map of a local file, else read into memory."""
        with self._mapping_damage():
            return self._reader.open()

    def check(self) -> None:
        """Raise `DataError` unless the files have the sizes and headers of this shard; reads nothing else of them."""
        with self._mapping_damage():
            self._reader.check()

    def read(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end) of the shard, read-only."""
        with self._mapping_damage():
            return self._reader.read(start, end)

    @property
    def _reader(self) -> ShardReader:
        files = [StoredFile(self._store, path, size) for path, size in self.files]
        return format_of(self.format).reader(ShardShape(self.tokens, self.dtype), files)

    @contextmanager
    def _mapping_damage(self) -> Iterator[None]:
        try:
            yield
        except ShardUnreadable as error:
            raise self._mismatched(error.file.path, error.what) from error

    def read_sidecar(self) -> ShardDocuments:
        """Which documents it holds; raises `DataError` where that is mismatched."""
        path = layout.documents_path(self.split, self.index)
        try:
            data = self._store.read(path)
        except NotFound as error:
            raise self._mismatched(self.path, f"has no documents sidecar at {path}") from error
        return ShardDocuments.from_bytes(data, self.documents_sha256, f"{self._store.uri}/{path}")

    def _mismatched(self, path: str, what: str) -> DataError:
        """The error of a file that is not what the index says; `what` goes on behind its URI."""
        step = f"list everything that is wrong: {tokjob('verify', self._store.uri)}"
        return DataError("ShardDamaged", f"{self._store.uri}/{path} {what}", next_step=step)


_maps: OrderedDict[tuple[int, int], TokenArray] = OrderedDict()
"""By stream and number of the shard; the one used last is at the end. Threads change it only with `_maps_lock`."""

_maps_lock = threading.RLock()
"""Reentrant: the garbage collector may end a stream, which closes its maps, in a thread that holds the lock."""

# A fork waits for the lock, so that no child finds it held by a thread that the child does not have.
os.register_at_fork(before=_maps_lock.acquire, after_in_parent=_maps_lock.release, after_in_child=_maps_lock.release)

_stream_keys = itertools.count()


@cache
def most_maps() -> int:
    """How many shards this process keeps open: a map holds a file descriptor, and others need some, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_MAPS if soft == resource.RLIM_INFINITY else max(4, min(_MOST_MAPS, soft // 4))


def _close_maps(stream_key: int) -> None:
    with _maps_lock:
        for key in [key for key in list(_maps) if key[0] == stream_key]:  # a finalizer may end another stream
            del _maps[key]


class Stream:
    """A run of tokens that documents were written into, cut into shards: one split, or several leading ones."""

    def __init__(self, number: int, shards: tuple[Shard, ...], dtype: np.dtype[np.unsignedinteger]) -> None:
        self.number = number
        self.shards = shards
        self.dtype = dtype
        self._ends = [shard.end for shard in shards]
        self._is_mapped = bool(shards) and shards[0].can_be_mapped
        self._checked: set[int] = set()
        self._key = next(_stream_keys)
        weakref.finalize(self, _close_maps, self._key).atexit = False

    def __reduce__(self) -> tuple[type[Stream], tuple[int, tuple[Shard, ...], np.dtype[np.unsignedinteger]]]:
        return Stream, (self.number, self.shards, self.dtype)

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
        if self._is_mapped:
            return self._map(number)[start - shard.start : end - shard.start].copy()
        if number not in self._checked:  # where shards are mapped, opening them checks
            shard.check()
            self._checked.add(number)
        return shard.read(start - shard.start, end - shard.start).copy()

    def _map(self, number: int) -> TokenArray:
        key = (self._key, number)
        with _maps_lock:
            kept = _maps.get(key)
            if kept is not None:
                _maps.move_to_end(key)
                return kept
        opened: TokenArray = np.asarray(self.shards[number].open())  # a plain array: slices of a memmap cost 3 us
        with _maps_lock:
            _maps[key] = opened
            while len(_maps) > most_maps():
                _maps.popitem(last=False)
        return opened

    def documents(self, start: int, end: int) -> Iterator[TokenArray]:
        """The whole documents that begin in [start, end), delimiters included; `start` is a shard's first token."""
        block: list[tuple[int, int]] = []
        for span in self._spans(start, end):
            block.append(span)
            if span[1] - block[0][0] >= _BLOCK_TOKENS:
                yield from self._documents_at(block)
                block = []
        yield from self._documents_at(block)

    def _documents_at(self, spans: list[tuple[int, int]]) -> Iterator[TokenArray]:
        if not spans:
            return
        origin = spans[0][0]
        tokens = self.tokens(origin, spans[-1][1])
        for start, end in spans:
            yield tokens[start - origin : end - origin].copy()  # one that is kept must not keep its block

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the documents that begin in [start, end) begin and end, in order."""
        goes_on: int | None = None  # where a document began that goes on in the next shard
        for shard in self.shards[self.shard_number(start) :]:
            if shard.start >= end and goes_on is None:
                return
            sidecar = shard.read_sidecar()
            ends = (shard.start + np.cumsum(sidecar.lengths, dtype=np.int64)).tolist()
            first = goes_on if sidecar.skipped else shard.start
            last = len(ends) - 1
            for entry, stop in enumerate(ends):
                if first is not None and first >= end:
                    return
                if entry == last and sidecar.continues:
                    goes_on = first
                    break
                if first is not None:
                    yield first, stop
                first = stop
            else:
                goes_on = None
