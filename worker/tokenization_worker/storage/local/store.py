"""Objects as files below one folder.

How an object is written is the business of `upload`; where temporary files live, and who may remove them, that of
`scratch`; how a path is reached without another's links, that of `folders`.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound
from tokenization_worker.storage.local.folders import entered, is_own, listable, opened_file, refuse_kind, refuse_link
from tokenization_worker.storage.local.lost_and_found import NAME, closed_folder
from tokenization_worker.storage.local.os_errors import map_os_errors, unless_gone
from tokenization_worker.storage.local.scratch import (
    SCRATCH,
    ScratchFolder,
    hand_back,
    has_live_writers,
    remove_dead_scratch,
)
from tokenization_worker.storage.local.upload import LocalUpload, unlink_version, version_of


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
        with unless_gone("list", self.root / folder), entered(self.root, folder) as fd:
            yield from self._walk(fd, ".", folder, prefix)

    def _walk(self, parent: int, name: str, folder: str, prefix: str) -> Iterator[Entry]:
        """What is in `name` of `parent`, whose path is `folder`, and below it; not behind links to folders, and not in
        a `lost+found` of the root that this user may not list."""
        with map_os_errors("list", self.root / folder), suppress(FileNotFoundError), listable(parent, name) as fd:
            with os.scandir(fd) as items:
                found = list(items)
            for item in found:
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir(follow_symlinks=False):
                    is_closed = path == NAME and closed_folder(self.root) is not None
                    leads_there = path.startswith(prefix) or prefix.startswith(f"{path}/")
                    if path != SCRATCH and leads_there and not is_closed:
                        yield from self._walk(fd, item.name, path, prefix)
                elif path.startswith(prefix):
                    status = self._stat(fd, item.name, path)
                    if status is not None and S_ISREG(status.st_mode):
                        yield Entry(path, status.st_size, version_of(status))
                    elif status is not None and is_own(path):
                        refuse_kind(status.st_mode, self.root / path)

    def _stat(self, folder: int, name: str, path: str) -> os.stat_result | None:
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
        with unless_gone("inspect", self.root / path):
            with entered(self.root, folder) as fd:
                status = self._stat(fd, name, path)
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
        return LocalUpload(self.root, scratch, name, fd, path, expect, durable)

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
        with unless_gone("delete", self.root / path), entered(self.root, folder, to_write=True) as fd:
            try:
                if version is None:
                    os.unlink(name, dir_fd=fd)
                else:
                    unlink_version(fd, name, version)
            except OSError as error:  # a read-only file system says so before it looks
                if error.errno != errno.EROFS or _is_there(fd, name):
                    raise

    def discard(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with unless_gone("discard", self.root / path), entered(self.root, folder, to_write=True) as fd:
            hand_back(fd, name, self.root)

    def local_path(self, path: str) -> Path | None:
        if path:
            self.stat(path)  # raises for a pipe, on which a reader of the path would wait
        return self.root / path

    def free_bytes(self) -> int | None:
        folder = self.root
        with map_os_errors("inspect", folder):
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            usage = shutil.disk_usage(folder)
        return usage.free if usage.total else None  # /proc and the like have no size

    def showing_life(self) -> AbstractContextManager[object]:
        self._own_scratch()  # its lock shows it, and lives as long as this process
        return nullcontext()

    def has_live_writers(self) -> bool:
        """Whether a process of this machine does, at this moment."""
        with map_os_errors("inspect", self.root / SCRATCH):
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


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
