"""Objects as files below one folder.

Invariant: a path holds either nothing or a complete file. Bytes go to a temporary file, are synced, and
appear by `link` (create-only: it fails where something is) or `rename` (replace). Where temporary files
live, and who may remove them, is the business of `scratch`.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Self

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound, PreconditionFailed
from tokenization_worker.storage.folders import locked_folder, make_folder, sync_folder
from tokenization_worker.storage.scratch import SCRATCH, ScratchFolder, hand_back, remove_dead_scratch

_FLUSH_BYTES = 16 << 20
"""Bytes of a shard after which their way to the disk is begun (Linux does that on DONTNEED), so that the final
fsync of 400 MB waits 5 ms rather than 105 ms (2026-11-21, virtio disk of 3 GB/s)."""

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What link(2) says on FAT, on mounted buckets and on some network shares."""


_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
_READING = ("list", "look at", "read")


@contextmanager
def map_os_errors(what: str, path: Path | str) -> Iterator[None]:
    """Turn an operating-system error on `path` into the answer its reader can act on."""
    try:
        yield
    except OSError as error:
        detail = f"cannot {what} {path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TemporaryError(
                "OutputFull",
                detail,
                next_step="free space there and start the same command again; what is done is kept",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM) and what in _READING:
            detail = f"{detail} as user {os.geteuid()}"
            raise SpecError("OutputNotReadable", detail, next_step="give this user read permission there") from error
        if error.errno == errno.EXDEV:
            raise SpecError(
                "OutputNotWritable",
                f"{detail}: a folder of the output lies on another file system, and no file can be moved there whole",
                next_step="keep the output on one file system: make output.uri a folder there, or a link to one",
            ) from error
        if error.errno in _LASTING:
            raise SpecError(
                "OutputNotWritable", detail, next_step="check the path and its owner and permissions"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise SpecError("SpecInvalid", detail, next_step="use a shorter output.path or output.uri") from error
        raise TemporaryError("StorageFailed", detail, next_step="start the same command again") from error


def version_of(status: os.stat_result) -> str:
    """Size, modification time and inode: changes with every write through this module."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


class LocalStore:
    """A folder; created at the first write."""

    connections = 1

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)
        self._scratch: ScratchFolder | None = None
        self._making_scratch = threading.Lock()

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return LocalStore, (self.root,)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        folder = self.root / prefix.rpartition("/")[0]
        yield from self._walk(folder, prefix)

    def _walk(self, folder: Path, prefix: str) -> Iterator[Entry]:
        with map_os_errors("list", folder):
            try:
                found = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError):
                return
        for item in found:
            path = os.path.relpath(item.path, self.root).replace(os.sep, "/")
            if item.is_dir(follow_symlinks=False):
                if path == SCRATCH:
                    continue
                if path.startswith(prefix) or prefix.startswith(path + "/"):
                    yield from self._walk(Path(item.path), prefix)
            elif path.startswith(prefix) and (entry := self.stat(path)) is not None:
                yield entry

    def stat(self, path: str) -> Entry | None:
        with map_os_errors("look at", self.root / path):
            try:
                status = (self.root / path).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return Entry(path, status.st_size, version_of(status)) if S_ISREG(status.st_mode) else None

    def read(self, path: str) -> bytes:
        with map_os_errors("read", self.root / path):
            try:
                return (self.root / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError) as error:
                raise NotFound(path) from error

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with map_os_errors("read", self.root / path):
            try:
                with (self.root / path).open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), max(0, end - start), start)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise NotFound(path) from error

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        return (self.read_range(path, start, end) for start, end in ranges)

    def upload(self, path: str, *, expect: str = MARK_ABSENT, durable: bool = True) -> LocalUpload:
        scratch = self._own_scratch()
        with map_os_errors("write", self.root / path):
            temporary = scratch.new_file() if durable else scratch.spare_file()
        return LocalUpload(self, temporary, path, expect, durable)

    def _own_scratch(self) -> ScratchFolder:
        with self._making_scratch, map_os_errors("write below", self.root):
            if self._scratch is not None and self._scratch.pid != os.getpid():
                self._scratch.let_go()
                self._scratch = None
            if self._scratch is None:
                self._scratch = ScratchFolder(self.root / SCRATCH)
            return self._scratch

    def delete(self, path: str, *, version: str | None = None) -> None:
        target = self.root / path
        with map_os_errors("delete", target), suppress(FileNotFoundError, NotADirectoryError):
            try:
                if version is None:
                    target.unlink()
                else:
                    _unlink_version(target, version)
            except OSError as error:  # a read-only file system says so before it looks
                if error.errno != errno.EROFS or os.path.lexists(target):
                    raise

    def discard(self, path: str) -> None:
        with map_os_errors("discard", self.root / path):
            hand_back(self.root / path, self.root / SCRATCH)

    def local_path(self, path: str) -> Path | None:
        return self.root / path

    def free_bytes(self) -> int | None:
        folder = self.root
        with map_os_errors("look at", folder):
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            usage = shutil.disk_usage(folder)
        return usage.free if usage.total else None  # /proc and the like have no size

    def close_own_scratch(self) -> None:
        with map_os_errors("clean up", self.root / SCRATCH):
            if self._scratch is not None and self._scratch.pid == os.getpid():
                self._scratch.remove()
            elif self._scratch is not None:
                self._scratch.let_go()
            self._scratch = None

    def close_scratch(self) -> None:
        self.close_own_scratch()
        with map_os_errors("clean up", self.root / SCRATCH):
            remove_dead_scratch(self.root / SCRATCH)


class LocalUpload:
    """A temporary file that becomes the object at `commit()`."""

    def __init__(self, store: LocalStore, temporary: Path, path: str, expect: str, durable: bool) -> None:
        self._target = store.root / path
        self._path = path
        self._temporary = temporary
        self._expect = expect
        self._durable = durable
        self._size = 0
        self._flushing = 0
        self._version = ""
        self.is_ours = False
        with map_os_errors("write", self._target):
            self._fd = os.open(temporary, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if durable else 0), 0o666)

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
        with map_os_errors("write", self._target):
            if self._durable:
                os.fsync(self._fd)
            else:
                os.ftruncate(self._fd, self._size)
            make_folder(self._target.parent)
            try:
                self._take_name()
            except PreconditionFailed:
                self._sync_name()  # whoever has it may have been killed before they did
                raise
            self._sync_name()
            status = os.fstat(self._fd)
        self._version = version_of(status)
        self.is_ours = True
        return Entry(self._path, status.st_size, self._version)

    def retract(self) -> None:
        with map_os_errors("delete", self._target), suppress(FileNotFoundError, NotADirectoryError):
            _unlink_version(self._target, self._version)

    def _take_name(self) -> None:
        if self._expect == MARK_ABSENT:
            self._link()
        else:
            self._replace()

    def _sync_name(self) -> None:
        if self._durable:
            sync_folder(self._target.parent)

    def _replace(self) -> None:
        """Give the file its name, if the version that was expected has it."""
        with locked_folder(self._target.parent):
            try:
                found = version_of(self._target.stat())
            except FileNotFoundError as error:
                raise PreconditionFailed(self._path) from error
            if found != self._expect:
                raise PreconditionFailed(self._path)
            self._temporary.rename(self._target)

    def _link(self) -> None:
        """Give the file its name, unless something has it."""
        try:
            os.link(self._temporary, self._target)
        except FileExistsError as error:
            self._require_object()
            raise PreconditionFailed(self._path) from error
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise SpecError(
                    "OutputNotWritable",
                    f"cannot write {self._target}: the file system there makes no hard links ({error.strerror}), "
                    "and without them nothing can be created only where nothing is",
                    next_step="write to a disk of this machine, or to a gs:// URI rather than a mounted bucket",
                ) from error
            raise

    def _require_object(self) -> None:
        """Raise `SpecError` where the name is taken by what is no object: nobody could ever replace or read it."""
        if self._target.is_symlink() and not self._target.exists():
            what = f"is a link to {self._target.readlink()}, where nothing is"
        elif self._target.is_dir():
            what = "is a folder"
        else:
            return
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
                self._temporary.unlink(missing_ok=True)


def _unlink_version(file: Path, version: str) -> None:
    with locked_folder(file.parent):
        if version_of(file.stat()) == version:
            file.unlink()
