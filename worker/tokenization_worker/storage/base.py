"""The protocols of places that hold objects: what the rest of the code may ask of them.

A store is a flat map from slash-separated paths to bytes below one root URI. Two rules make it safe to
kill anything at any time:

- an object appears whole or not at all: bytes go into an `Upload` and become visible at `commit()`;
- every write names what it expects to find: nothing (create-only) or one version (replace).

Clients and file descriptors stay inside the implementations (`local`, `gcs`); their exceptions are mapped
there to the classes of `errors` and to `PreconditionFailed` and `NotFound` below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

MARK_ABSENT = ""
"""The expected version of an object that must not exist yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object: path below the store's root, size in bytes, version, and its metadata.

    `version` changes with every write of the path (a generation, or the local file's identity). Local
    files carry no metadata; `crc32c` is None where the store keeps no checksum.
    """

    path: str
    size: int
    version: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    crc32c: int | None = None


class NotFound(Exception):
    """The object does not exist (or not in the version asked for)."""


class PreconditionFailed(Exception):
    """A write found something other than it expected; nothing was changed."""


class ByteReader(Protocol):
    """A raw seekable stream; `read(n)` may return fewer bytes and returns `b""` at the end."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A stream of a store that is far away."""

    def expect(self, ranges: Iterable[tuple[int, int]], /) -> None:
        """Bytes of these ascending ranges [start, end) will be read next, and nothing after them."""
        ...


def expect_ranges(stream: ByteReader, ranges: Iterable[tuple[int, int]]) -> None:
    """OnAdvance `stream` what will be read of it, in case that it can make use of that."""
    if isinstance(stream, ReadsAhead):
        stream.expect(ranges)


class Upload(Protocol):
    """Bytes on their way to an object; leaving the `with` block without `commit()` drops them.

    `is_ours`: `commit` is certain to have made what it returned.
    """

    is_ours: bool

    def write(self, data: bytes | memoryview, /) -> None: ...

    def commit(self, metadata: Mapping[str, str] | None = None) -> Entry:
        """Make the object visible and durable; raises `PreconditionFailed`.

        A store that cannot tell its own repeated request from another writer's may take an object with the
        very same bytes for this write's own, and return its entry.
        """
        ...

    def retract(self) -> None:
        """Delete what `commit` made, that version and no other; nothing unless it `is_ours`."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Store(Protocol):
    """Objects below one root URI. Paths are relative to it and never begin with a slash.

    `connections`: calls that a process may have under way at once; 1 where a call does not wait for a network.
    """

    uri: str
    connections: int

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object whose path starts with `prefix`, in no particular order."""
        ...

    def stat(self, path: str) -> Entry | None: ...

    def read(self, path: str) -> bytes:
        """The whole object; raises `NotFound`."""
        ...

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Bytes [start, end), fewer where the object ends before; raises `NotFound`."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """`read_range` of each in turn, which are not empty and ascend; a store that is far away reads ahead."""
        ...

    def upload(self, path: str, *, expect: str = MARK_ABSENT, durable: bool = True) -> Upload:
        """Begin to write `path`; `durable=False` is for scratch that may be lost with the machine."""
        ...

    def delete(self, path: str, *, version: str | None = None) -> None:
        """Remove the object, where it has this version (None: any); one that is already gone is fine."""
        ...

    def discard(self, path: str) -> None:
        """Remove scratch (an upload that was not durable); its room may serve the next one."""
        ...

    def local_path(self, path: str) -> Path | None:
        """Where the object can be memory-mapped, if it can."""
        ...

    def free_bytes(self) -> int | None:
        """Room left, where the store has an end."""
        ...

    def showing_life(self) -> AbstractContextManager[object]:
        """Within the block, `has_live_writers` of other processes says so."""
        ...

    def has_live_writers(self) -> bool:
        """Whether a run writes here now; a store that is far away knows how it was some minutes ago."""
        ...

    def close_own_scratch(self) -> None:
        """Remove what unfinished writes of this process left behind: it may be long before it writes again."""
        ...

    def close_scratch(self) -> None:
        """Remove what unfinished writes of this process, and of dead ones, left behind."""
        ...
