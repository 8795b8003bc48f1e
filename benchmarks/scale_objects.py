"""A store of objects in memory, and what it looks like to the code under test.

`Objects` is the service: it lists in pages of a thousand, checks preconditions and keeps sizes, versions, checksums and
metadata as Cloud Storage does. An object may be larger than its bytes: shards and segments are sizes only.
`ObjectStore` is a `Store` on it, or on anything that answers the same calls (see `scale_head`).
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import google_crc32c

from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound, PreconditionFailed

PAGE_OBJECTS = 1_000
CONNECTIONS = 32
"""Calls that one process may have under way at once."""


class Calls(Protocol):
    """What the service answers; each is one call over the network."""

    def page(self, prefix: str, after: str) -> list[Entry]: ...
    def stat(self, path: str) -> Entry | None: ...
    def get(self, path: str, start: int, end: int | None) -> bytes | None: ...
    def put(self, path: str, data: bytes, size: int, metadata: dict[str, str], expect: str) -> Entry | None: ...
    def remove(self, path: str, version: str | None) -> None: ...


class Objects:
    """The objects below one URI, in folders, whose names are sorted when somebody lists them."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, tuple[Entry, bytes]]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._generation = 0
        self._lock = threading.Lock()

    def page(self, prefix: str, after: str) -> list[Entry]:
        """The next objects after `after` whose path begins with `prefix`, in order; fewer than a page: the last."""
        found: list[Entry] = []
        last_folder, last_name = _split(after)
        with self._lock:
            for folder in sorted(self._folders):
                if folder < last_folder or not (folder.startswith(prefix) or prefix.startswith(folder)):
                    continue
                names = self._names(folder)
                first = bisect_left(names, prefix[len(folder) :])
                if after and folder == last_folder:
                    first = max(first, bisect_right(names, last_name))
                for name in names[first : first + PAGE_OBJECTS - len(found)]:
                    if not (folder + name).startswith(prefix):
                        break
                    found.append(self._folders[folder][name][0])
        return found

    def _names(self, folder: str) -> list[str]:
        if folder not in self._sorted:
            self._sorted[folder] = sorted(self._folders[folder])
        return self._sorted[folder]

    def stat(self, path: str) -> Entry | None:
        found = self._find(path)
        return None if found is None else found[0]

    def get(self, path: str, start: int, end: int | None) -> bytes | None:
        found = self._find(path)
        return None if found is None else found[1][start:end]

    def _find(self, path: str) -> tuple[Entry, bytes] | None:
        folder, name = _split(path)
        return self._folders.get(folder, {}).get(name)

    def put(self, path: str, data: bytes, size: int, metadata: dict[str, str], expect: str) -> Entry | None:
        """The new object's entry; None where something else than `expect` is there."""
        folder, name = _split(path)
        with self._lock:
            found = self._folders.get(folder, {}).get(name)
            if (MARK_ABSENT if found is None else found[0].version) != expect:
                return None
            self._generation += 1
            entry = Entry(path, size, str(10**15 + self._generation), metadata, google_crc32c.value(data))
            self._folders.setdefault(folder, {})[name] = entry, data
            if found is None:
                self._sorted.pop(folder, None)
        return entry

    def remove(self, path: str, version: str | None) -> None:
        folder, name = _split(path)
        with self._lock:
            found = self._folders.get(folder, {}).get(name)
            if found is not None and version in (None, found[0].version):
                del self._folders[folder][name]
                self._sorted.pop(folder, None)


def _split(path: str) -> tuple[str, str]:
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


class ObjectStore:
    """A `Store` whose calls go to `calls`."""

    def __init__(self, uri: str, calls: Calls, connections: int = CONNECTIONS) -> None:
        self.uri = uri
        self.connections = connections
        self._calls = calls

    def list(self, prefix: str = "") -> Iterator[Entry]:
        after = ""
        while True:
            page = self._calls.page(prefix, after)
            yield from page
            if len(page) < PAGE_OBJECTS:
                return
            after = page[-1].path

    def stat(self, path: str) -> Entry | None:
        return self._calls.stat(path)

    def read(self, path: str) -> bytes:
        return self._get(path, 0, None)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._get(path, start, max(start, end))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        return (self.read_range(path, start, end) for start, end in ranges)

    def _get(self, path: str, start: int, end: int | None) -> bytes:
        data = self._calls.get(path, start, end)
        if data is None:
            raise NotFound(path)
        return data

    def upload(self, path: str, *, expect: str = MARK_ABSENT, durable: bool = True) -> ObjectUpload:
        del durable
        return ObjectUpload(self._calls, path, expect)

    def delete(self, path: str, *, version: str | None = None) -> None:
        self._calls.remove(path, version)

    def discard(self, path: str) -> None:
        self._calls.remove(path, None)

    def local_path(self, path: str) -> Path | None:
        del path
        return None

    def free_bytes(self) -> int | None:
        return None

    def showing_life(self) -> AbstractContextManager[object]:
        return nullcontext()

    def has_live_writers(self) -> bool:
        return False

    def close_own_scratch(self) -> None:
        """Nothing is left behind."""

    def close_scratch(self) -> None:
        """Nothing is left behind."""


class ObjectUpload:
    """Bytes that become an object in one call; `pad` makes it larger than they are."""

    def __init__(self, calls: Calls, path: str, expect: str) -> None:
        self._calls = calls
        self._path = path
        self._expect = expect
        self._data = io.BytesIO()
        self._padding = 0
        self._version = ""
        self.is_ours = False

    def write(self, data: bytes | memoryview, /) -> None:
        self._data.write(data)

    def pad(self, size: int) -> None:
        self._padding = size

    def commit(self, metadata: Mapping[str, str] | None = None) -> Entry:
        data = self._data.getvalue()
        entry = self._calls.put(self._path, data, len(data) + self._padding, dict(metadata or {}), self._expect)
        if entry is None:
            raise PreconditionFailed(self._path)
        self._version = entry.version
        self.is_ours = True
        return entry

    def retract(self) -> None:
        if self.is_ours:
            self._calls.remove(self._path, self._version)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._data.close()
