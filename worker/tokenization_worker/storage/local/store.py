"""Objects as files below one folder.

Invariant: a path holds either nothing or a complete file. Bytes go to a temporary file, are synced, and
appear by `link` (create-only: it fails where something is) or `rename` (replace). Where temporary files
live, and who may remove them, is the business of `scratch`; how a path is reached without another's links, that of
`folders`.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from types import TracebackType
from typing import Self

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.host.open_files import explain_open_files
from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound, PreconditionFailed
from tokenization_worker.storage.local.folders import (
    entered,
    is_own,
    listable,
    locked_folder,
    opened_file,
    refuse_kind,
    refuse_link,
    sync_folder,
)
from tokenization_worker.storage.local.scratch import (
    SCRATCH,
    ScratchFolder,
    hand_back,
    has_live_writers,
    remove_dead_scratch,
)

_FLUSH_BYTES = 16 << 20
"""Bytes of a shard after which their way to the disk is begun (Linux does that on DONTNEED), so that the final
fsync of 400 MB waits 5 ms rather than 105 ms (2026-11-21, virtio disk of 3 GB/s)."""

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What link(2) says on FAT, on mounted buckets and on some network shares."""


_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
_READING = ("list", "look at", "read")


_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP)


def _what_is_no_folder(path: Path) -> str | None:
    """What stands at `path`, or where a folder above it belongs, in words; None where only folders do."""
    for each in (path, *path.parents):
        try:
            mode = each.stat().st_mode
        except OSError as error:
            if error.errno == errno.ELOOP and each.is_symlink():
                return f"{each} is a link in a circle"
            if each.is_symlink():  # to nothing, as the error itself says
                return None
            continue
        if S_ISDIR(mode):
            return None
        return f"{each} is {'a file' if S_ISREG(mode) else 'a pipe, a socket or a device'}"
    return None


def _too_large_file(detail: str) -> SpecError:
    """The error of a file that outgrows what this process, or else the file system, allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        step = "write to a file system that takes larger files, or make output.shards.tokens smaller"
        return SpecError("FileSizeLimit", f"{detail}: the file system takes no file that large", next_step=step)
    return SpecError(
        "FileSizeLimit",
        f"{detail}: this process may write files of {limit:,} bytes at most (ulimit -f)",
        next_step="raise the limit (ulimit -f unlimited; for a service LimitFSIZE), and start the same command again; "
        "what is done is kept",
    )


def _output_gone(root: Path, path: Path | str) -> TemporaryError:
    """The error of a write that finds no folder: what is missing below `root` is made, so others took it away."""
    gone = "files of this run in" if root.exists() else "the output's folder"
    verb = "are" if root.exists() else "is"
    return TemporaryError(
        "StorageFailed",
        f"cannot write {path}: {gone} {root} {verb} gone: removed or moved while the run went on",
        next_step="put it back and start the same command again, which goes on; without it the run begins anew",
    )


@contextmanager
def map_os_errors(what: str, path: Path | str, *, root: Path | None = None) -> Iterator[None]:
    """Turn an operating-system error on `path` into the answer its reader can act on. `root`: of an output that this
    process has begun to write to."""
    try:
        yield
    except OSError as error:
        limited = explain_open_files(error)
        if limited is not None:
            raise limited from error
        if error.errno == errno.ENOENT and root is not None:
            raise _output_gone(root, path) from error
        detail = f"cannot {what} {path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TemporaryError(
                "OutputFull",
                detail,
                next_step="free space there and start the same command again; what is done is kept",
            ) from error
        if error.errno == errno.EFBIG:
            raise _too_large_file(detail) from error
        if error.errno in (errno.EACCES, errno.EPERM) and what in _READING:
            detail = f"{detail} as user {os.geteuid()}"
            raise SpecError("OutputNotReadable", detail, next_step="give this user read permission there") from error
        if error.errno == errno.EXDEV:
            raise SpecError(
                "OutputNotWritable",
                f"{detail}: a folder of the output lies on another file system, and no file can be moved there whole",
                next_step="keep the output on one file system: make output.uri a folder there, or a link to one",
            ) from error
        if error.errno in _NO_FOLDER and (found := _what_is_no_folder(Path(path))) is not None:
            raise SpecError(
                "OutputNotWritable", f"{found}; the output needs a folder", next_step="give --output a new folder"
            ) from error
        if error.errno in _LASTING:
            raise SpecError(
                "OutputNotWritable", detail, next_step="check the path and its owner and permissions"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise SpecError("SpecInvalid", detail, next_step="use a shorter output.path or output.uri") from error
        raise TemporaryError("StorageFailed", detail, next_step="start the same command again") from error


@contextmanager
def _unless_gone(what: str, path: Path) -> Iterator[None]:
    """`map_os_errors`, where what is not there is no error."""
    with map_os_errors(what, path), suppress(FileNotFoundError, NotADirectoryError):
        yield


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
        folder = prefix.rpartition("/")[0]
        with _unless_gone("list", self.root / folder), entered(self.root, folder) as fd:
            yield from self._walk(fd, ".", folder, prefix)

    def _walk(self, parent: int, name: str, folder: str, prefix: str) -> Iterator[Entry]:
        """What is in `name` of `parent`, whose path is `folder`, and below it; not behind links to folders."""
        with map_os_errors("list", self.root / folder), suppress(FileNotFoundError), listable(parent, name) as fd:
            with os.scandir(fd) as items:
                found = list(items)
            for item in found:
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir(follow_symlinks=False):
                    if path != SCRATCH and (path.startswith(prefix) or prefix.startswith(f"{path}/")):
                        yield from self._walk(fd, item.name, path, prefix)
                elif path.startswith(prefix):
                    status = self._look_at(fd, item.name, path)
                    if status is not None and S_ISREG(status.st_mode):
                        yield Entry(path, status.st_size, version_of(status))
                    elif status is not None and is_own(path):
                        refuse_kind(status.st_mode, self.root / path)

    def _look_at(self, folder: int, name: str, path: str) -> os.stat_result | None:
        """What has this name, or what a link there leads to; raises `SpecError` for a link below `_tokenization`."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=not is_own(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if S_ISLNK(status.st_mode):
            refuse_link(folder, name, self.root / path)
        return status

    def stat(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        with _unless_gone("look at", self.root / path):
            with entered(self.root, folder) as fd:
                status = self._look_at(fd, name, path)
            if status is not None and S_ISREG(status.st_mode):
                return Entry(path, status.st_size, version_of(status))
            if status is not None:
                refuse_kind(status.st_mode, self.root / path)
        return None

    def read(self, path: str) -> bytes:
        with map_os_errors("read", self.root / path):
            try:
                with opened_file(self.root, path) as fd, open(fd, "rb", buffering=0, closefd=False) as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError) as error:
                raise NotFound(path) from error

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return next(self.read_ranges(path, [(start, end)]))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        with map_os_errors("read", self.root / path):
            try:
                with opened_file(self.root, path) as fd:
                    for start, end in ranges:
                        yield os.pread(fd, max(0, end - start), start)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise NotFound(path) from error

    def upload(self, path: str, *, expect: str = MARK_ABSENT, durable: bool = True) -> LocalUpload:
        scratch = self._own_scratch()
        with map_os_errors("write", self.root / path, root=self.root):
            fd, name = scratch.new_file() if durable else scratch.spare_file()
        return LocalUpload(self, scratch, name, fd, path, expect, durable)

    def _own_scratch(self) -> ScratchFolder:
        with self._making_scratch, map_os_errors("write below", self.root):
            if self._scratch is not None and self._scratch.pid != os.getpid():
                self._scratch.let_go()
                self._scratch = None
            if self._scratch is None:
                self._scratch = ScratchFolder(self.root)
            return self._scratch

    def delete(self, path: str, *, version: str | None = None) -> None:
        folder, _, name = path.rpartition("/")
        with _unless_gone("delete", self.root / path), entered(self.root, folder, to_write=True) as fd:
            try:
                if version is None:
                    os.unlink(name, dir_fd=fd)
                else:
                    _unlink_version(fd, name, version)
            except OSError as error:  # a read-only file system says so before it looks
                if error.errno != errno.EROFS or _is_there(fd, name):
                    raise

    def discard(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with _unless_gone("discard", self.root / path), entered(self.root, folder, to_write=True) as fd:
            hand_back(fd, name, self.root)

    def local_path(self, path: str) -> Path | None:
        if path:
            self.stat(path)  # raises for a pipe, on which a reader of the path would wait
        return self.root / path

    def free_bytes(self) -> int | None:
        folder = self.root
        with map_os_errors("look at", folder):
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            usage = shutil.disk_usage(folder)
        return usage.free if usage.total else None  # /proc and the like have no size

    def showing_life(self) -> AbstractContextManager[object]:
        self._own_scratch()  # its lock shows it, and lives as long as this process
        return nullcontext()

    def has_live_writers(self) -> bool:
        """Whether a process of this machine does, at this moment."""
        with map_os_errors("look at", self.root / SCRATCH):
            return has_live_writers(self.root)

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
            remove_dead_scratch(self.root)


class LocalUpload:
    """A temporary file that becomes the object at `commit()`."""

    def __init__(
        self, store: LocalStore, scratch: ScratchFolder, name: str, fd: int, path: str, expect: str, durable: bool
    ) -> None:
        self._root = store.root
        self._target = store.root / path
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
        with _unless_gone("delete", self._target), entered(self._root, self._folder, to_write=True) as folder:
            _unlink_version(folder, self._name, self._version)

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
                    f"cannot write {self._target}: the file system there makes no hard links ({error.strerror}), "
                    "and without them nothing can be created only where nothing is",
                    next_step="write to a disk of this machine, or to a gs:// URI rather than a mounted bucket",
                ) from error
            raise

    def _require_object(self, folder: int) -> None:
        """Raise `SpecError` where the name is taken by what is no object: nobody could ever replace or read it."""
        try:
            mode = os.stat(self._name, dir_fd=folder).st_mode
        except FileNotFoundError:
            try:
                what = f"is a link to {os.readlink(self._name, dir_fd=folder)}, where nothing is"
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


def _unlink_version(folder: int, name: str, version: str) -> None:
    with locked_folder(folder):
        if version_of(os.stat(name, dir_fd=folder)) == version:
            os.unlink(name, dir_fd=folder)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
