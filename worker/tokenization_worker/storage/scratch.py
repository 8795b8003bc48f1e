"""Temporary files of a local store: who owns them, and who may remove them.

They live in `_tokenization/tmp/<host>-<pid>-<random>/`, each folder guarded by a lock that the kernel drops when
its process dies, so that whoever comes next can tell a dead writer's leftovers from a live writer's work.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import socket
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from stat import S_ISDIR

from tokenization_worker.storage.folders import make_folder

SCRATCH = "_tokenization/tmp"
_SPARE = "spare"
_ATTEMPTS = 10_000
"""How often a folder is made again that other runs remove, which they do once each, before no folder can be made."""


class ScratchFolder:
    """This process's folder for temporary files, locked as long as the process lives."""

    def __init__(self, parent: Path) -> None:
        self.pid = os.getpid()
        self._spare = parent / _SPARE
        self._numbers = count(1)
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                _make_parent(parent)
                if self._claim(parent):
                    return
        raise PermissionError(errno.EPERM, "no folder can be made there")  # as in /proc

    def _claim(self, parent: Path) -> bool:
        """Make a locked folder in `parent`; False where somebody cleaned up before it was locked."""
        name = f"{socket.gethostname()}-{self.pid}-{secrets.token_hex(4)}"
        self.folder = parent / name
        self._lock_path = parent / f"{name}.lock"
        with ExitStack() as undo:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            undo.callback(os.close, self._lock)
            undo.callback(self._lock_path.unlink, missing_ok=True)
            if not (_lock_now(self._lock, fcntl.LOCK_EX) and _is_same_file(self._lock, self._lock_path)):
                return False
            self.folder.mkdir()
            undo.pop_all()
        return True

    def new_file(self) -> Path:
        return self.folder / f"{next(self._numbers):06d}"

    def spare_file(self) -> Path:
        """A file to be written over: one that was handed back (see `hand_back`), or a new, empty one."""
        path = self.new_file()
        with suppress(FileNotFoundError):
            for spare in self._spare.iterdir():
                with suppress(FileNotFoundError):  # somebody else took it
                    spare.rename(path)
                    return path
        path.touch()
        return path

    def let_go(self) -> None:
        """In a forked child: drop its share of the parent's lock, or the parent would seem to outlive itself."""
        os.close(self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)


def remove_dead_scratch(parent: Path) -> None:
    """Remove the folders whose process is gone, and `parent` itself when it is empty."""
    for lock_path in _list_locks(parent):
        try:
            lock = os.open(lock_path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if _lock_now(lock, fcntl.LOCK_SH):
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
                lock_path.unlink(missing_ok=True)
        finally:
            os.close(lock)
    shutil.rmtree(parent / _SPARE, ignore_errors=True)
    with suppress(OSError):
        parent.rmdir()


def hand_back(file: Path, parent: Path) -> None:
    """Take a scratch file away; its pages serve the next one.

    Writing over a file costs a tenth of writing a new one, whose pages the kernel must find and clear: 0.1
    against 1 ns a byte (2026-11-21), 6 % of a run. A reader that has the file open sees foreign bytes, which its
    checksums tell.
    """
    spare = parent / _SPARE
    try:
        spare.mkdir(parents=True, exist_ok=True)
        file.rename(spare / secrets.token_hex(8))
    except (FileExistsError, FileNotFoundError):  # another run that ends removes the folders at any moment
        file.unlink(missing_ok=True)


def has_live_writers(root: Path) -> bool:
    """Whether a process of this machine is writing below `root` right now."""
    for lock_path in _list_locks(root / SCRATCH):
        with suppress(FileNotFoundError):
            lock = os.open(lock_path, os.O_RDONLY)
            try:
                if not _lock_now(lock, fcntl.LOCK_SH):
                    return True
            finally:
                os.close(lock)
    return False


def _list_locks(parent: Path) -> list[Path]:
    """The lock files in `parent`, none where it is gone (`Path.glob` of Python 3.11 raises when it goes just then)."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(parent) as found:
        return [Path(item.path) for item in found if item.name.endswith(".lock")]
    return []


def _make_parent(parent: Path) -> None:
    try:
        make_folder(parent)
    except FileExistsError:
        try:
            is_folder = S_ISDIR(parent.stat().st_mode)  # one look: it may come and go between two
        except FileNotFoundError:
            _refuse_broken_link(parent)  # else somebody removed it just now, as will be seen
        else:
            if not is_folder:
                raise


def _refuse_broken_link(path: Path) -> None:
    """Raise where `path` goes through a link to nothing: no folder can ever be made there."""
    for folder in (path, *path.parents):
        if folder.is_symlink() and not folder.exists():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a link to {folder.readlink()}, where nothing is")


def _lock_now(fd: int, kind: int) -> bool:
    """Take the owner's lock (`LOCK_EX`), or see that it has no owner (`LOCK_SH`: no looker seems one to another)."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
