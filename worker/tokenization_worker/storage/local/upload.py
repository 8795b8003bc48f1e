"""Writes one object of a local store.

Invariant: a path holds either nothing or a complete file. Bytes go to a temporary file, are synced, and
appear by `link` (create-only: it fails where something is) or `rename` (replace).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from types import TracebackType
from typing import Self

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import MARK_ABSENT, Entry, PreconditionFailed
from tokenization_worker.storage.local.folders import entered, locked_folder, refuse_kind, sync_folder
from tokenization_worker.storage.local.os_errors import map_os_errors, unless_gone
from tokenization_worker.storage.local.scratch import ScratchFolder

_FLUSH_BYTES = 16 << 20
"""Bytes of a shard after which their way to the disk is begun (Linux does that on DONTNEED), so that the final
fsync of 400 MB waits 5 ms rather than 105 ms (2026-11-21, virtio disk of 3 GB/s)."""


_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What link(2) says on FAT, on mounted buckets and on some network shares."""


def version_of(status: os.stat_result) -> str:
    """Size, modification time and inode: changes with every write through this module."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


class LocalUpload:
    """A temporary file that becomes the object at `commit()`."""

    def __init__(
        self, root: Path, scratch: ScratchFolder, name: str, fd: int, path: str, expect: str, durable: bool
    ) -> None:
        self._root = root
        self._target = root / path
        self._folder, _, self._name = path.rpartition("/")
        self._path = path
        self._scratch = scratch
        self._temporary = name
        self._fd = fd
        self._expect = expect
        self._durable = durable
        self._size = 0
        self._flushing = 0
        self._version = ""
        self.is_ours = False

    def write(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data).cast("B")
        with map_os_errors("write", self._target):
            while view:
                written = os.write(self._fd, view)
                view = view[written:]
                self._size += written
            if self._durable and self._size - self._flushing >= _FLUSH_BYTES and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._fd, self._flushing, self._size - self._flushing, os.POSIX_FADV_DONTNEED)
                self._flushing = self._size

    def commit(self, metadata: Mapping[str, str] | None = None) -> Entry:
        del metadata  # local files carry none; their readers open the small files
        with map_os_errors("write", self._target, root=self._root):
            if self._durable:
                os.fsync(self._fd)
            else:
                os.ftruncate(self._fd, self._size)
            with entered(self._root, self._folder, to_write=True, make=True) as folder:
                try:
                    self._take_name(folder)
                except PreconditionFailed:
                    self._sync_name(folder)  # the process that has it may have been killed before it did
                    raise
                self._sync_name(folder)
            status = os.fstat(self._fd)
        self._version = version_of(status)
        self.is_ours = True
        return Entry(self._path, status.st_size, self._version)

    def retract(self) -> None:
        with unless_gone("delete", self._target), entered(self._root, self._folder, to_write=True) as folder:
            unlink_version(folder, self._name, self._version)

    def _take_name(self, folder: int) -> None:
        if self._expect == MARK_ABSENT:
            self._link(folder)
        else:
            self._replace(folder)

    def _sync_name(self, folder: int) -> None:
        if self._durable:
            sync_folder(folder)

    def _replace(self, folder: int) -> None:
        """Give the file its name, if the version that was expected has it."""
        with locked_folder(folder):
            try:
                found = version_of(os.stat(self._name, dir_fd=folder))
            except FileNotFoundError as error:
                raise PreconditionFailed(self._path) from error
            if found != self._expect:
                raise PreconditionFailed(self._path)
            self._scratch.rename(self._temporary, folder, self._name)

    def _link(self, folder: int) -> None:
        """Give the file its name, unless something has it."""
        try:
            self._scratch.link(self._temporary, folder, self._name)
        except FileExistsError as error:
            self._require_object(folder)
            raise PreconditionFailed(self._path) from error
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise SpecError(
                    "OutputNotWritable",
                    f"cannot write {self._target}: the file system there does not support hard links "
                    f"({error.strerror}), and tokjob needs them to create a file without overwriting another one",
                    next_step="write to a disk of this machine, or to a gs:// URI rather than a mounted bucket",
                ) from error
            raise

    def _require_object(self, folder: int) -> None:
        """Raise `SpecError` where the name is taken by what is no object: nobody could ever replace or read it."""
        try:
            mode = os.stat(self._name, dir_fd=folder).st_mode
        except FileNotFoundError:
            try:
                what = f"is a link to {os.readlink(self._name, dir_fd=folder)}, which does not exist"
            except OSError:  # it went meanwhile
                return
        else:
            refuse_kind(mode, self._target)
            if not S_ISDIR(mode):
                return
            what = "is a folder"
        raise SpecError(
            "OutputNotWritable", f"cannot write {self._target}: it {what}", next_step="move it away, and start again"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with map_os_errors("write", self._target) if kind is None else suppress(OSError):  # the first error counts
            try:
                os.close(self._fd)
            finally:
                self._scratch.remove_file(self._temporary)


def unlink_version(folder: int, name: str, version: str) -> None:
    """Remove `name` from a folder that is open, unless another version has that name by now."""
    with locked_folder(folder):
        if version_of(os.stat(name, dir_fd=folder)) == version:
            os.unlink(name, dir_fd=folder)
