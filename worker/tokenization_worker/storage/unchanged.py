"""Opens a source file that must not change while it is read.

A store serves one version of an object, whatever is written to its name meanwhile. A local file can be cut, extended,
written in place or replaced under its reader, so every byte of it is held against the file that was planned: its end
must be where the plan has it, and after the last byte it must still be the file that was opened.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import MTIME, SourceFile, source_changed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LOOKS_AT_ONCE = 16
_STATS_A_CALL = 500
"""A look costs 9 us on a local disk, where threads neither help nor harm (500,000 files in 3 to 5 s, 2026-11), and a
round trip on a network share."""


class LocalReader(io.FileIO):
    """An open file; once it is held to a planned one, raises `ChangedError` where its end is not the planned one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, opener=_open_now)
        self._path = path
        self._opened = os.fstat(self.fileno())
        self._held_to: SourceFile | None = None
        self._position = 0

    @property
    def opened(self) -> SourceFile:
        """What the file was when it was opened."""
        return local_file(self._path, self._opened)

    def hold_to(self, file: SourceFile) -> None:
        """From now on this is what the file must be; it was when it was opened."""
        self._held_to = file

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        self._count(len(data), is_end=size is None or size < 0 or (size > 0 and not data))
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = super().readinto(buffer) or 0
        self._count(count, is_end=not count and memoryview(buffer).nbytes > 0)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._position = super().seek(offset, whence)
        return self._position

    def _count(self, n_bytes: int, *, is_end: bool) -> None:
        self._position += n_bytes
        file = self._held_to
        if file is not None and (self._position > file.size or (is_end and self._position < file.size)):
            raise self._changed(file)

    def require_unchanged(self) -> None:
        """Raise `ChangedError` unless the open file is still what it was, whatever has its name."""
        was, now = self._opened, os.fstat(self.fileno())
        if (was.st_ctime_ns, was.st_mtime_ns, was.st_size) != (now.st_ctime_ns, now.st_mtime_ns, now.st_size):
            raise self._changed(self.opened)

    def _changed(self, file: SourceFile) -> Exception:
        """What has the path now says more than the open file, which may have no name any more."""
        now: os.stat_result | None = os.fstat(self.fileno())
        try:
            named = os.stat(self._path)  # noqa: PTH116
            if (named.st_dev, named.st_ino) != (self._opened.st_dev, self._opened.st_ino):
                now = named
        except (FileNotFoundError, NotADirectoryError):
            now = None
        except OSError:  # it cannot be looked at: the open file is all that is known
            pass
        return source_changed(file, None if now is None else local_file(self._path, now), "while it was read")


def _open_now(path: str, flags: int) -> int:
    """Open a file, and do not wait for a process at the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def local_file(path: str, status: os.stat_result) -> SourceFile:
    """A local file by its status."""
    version = f"{MTIME}{status.st_mtime_ns}"
    return SourceFile(path, status.st_size, version, "", status.st_ino, status.st_ctime_ns)


def hold(stream: ByteReader, file: SourceFile) -> ByteReader:
    """`stream`, held to `file`, as which it was opened, where it is one of a file that may change."""
    if isinstance(stream, LocalReader):
        stream.hold_to(file)
    return stream


def require_unchanged(stream: ByteReader) -> None:
    """Raise `ChangedError` if the file of a stream was changed since it was opened."""
    if isinstance(stream, LocalReader):
        stream.require_unchanged()


class StatsAgain(Protocol):
    """What the file at a URI is now, as cheaply as can be; None where it is gone."""

    def __call__(self, uri: str, /) -> SourceFile | None: ...


def find_touched(files: Sequence[SourceFile], stat: StatsAgain) -> Iterator[tuple[SourceFile, SourceFile | None]]:
    """Those of `files` that are not what they were, in order, each with what it is now."""

    def find(first: int) -> list[tuple[SourceFile, SourceFile | None]]:
        found = ((file, stat(file.uri)) for file in files[first : first + _STATS_A_CALL])
        return [(file, now) for file, now in found if now is None or file.was_touched(now)]

    firsts = range(0, len(files), _STATS_A_CALL)
    return chain.from_iterable(map_at_once(find, firsts, min(len(firsts), _LOOKS_AT_ONCE)))
