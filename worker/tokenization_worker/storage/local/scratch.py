"""Temporary files of a local store: which process owns them, and which may remove them.

They live in `_tokenization/tmp/<host>-<pid>-<random>/`, each folder guarded by a lock that the kernel drops when
its process dies, so that the next process can tell a dead writer's leftovers from a live writer's work. Nothing there
is reached through a link, and nothing is written over that has another name as well.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.local.folders import (
    OWN,
    entered,
    listable,
    make_folder,
    open_regular,
    refuse_link,
)

SCRATCH = f"{OWN}/tmp"
_SPARE = "spare"
_LOCK = ".lock"
_ATTEMPTS = 10_000
"""How often a folder is made again that other runs remove, which they do once each, before no folder can be made."""

_GONE = -1
"""Stands for the descriptor of a folder that is closed."""


class ScratchFolder:
    """This process's folder for temporary files below an output, locked as long as the process lives."""

    def __init__(self, root: Path) -> None:
        self.pid = os.getpid()
        self._root = root
        self._numbers = count(1)
        self._folder = _GONE
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                _make_root(root)
                with entered(root, SCRATCH, to_write=True, make=True) as parent:
                    if self._claim(parent):
                        return
        raise PermissionError(errno.EPERM, "tokjob cannot create a folder there")  # as in /proc

    def _claim(self, parent: int) -> bool:
        """Make a locked folder in `parent`; False where another process cleaned up before it was locked."""
        self._name = f"{socket.gethostname()}-{self.pid}-{secrets.token_hex(4)}"
        name = self._name + _LOCK
        with ExitStack() as undo:
            self._lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
            undo.callback(os.close, self._lock)
            undo.callback(_remove, parent, name)
            if not (_lock_now(self._lock, fcntl.LOCK_EX) and _is_same_file(self._lock, parent, name)):
                return False
            os.mkdir(self._name, dir_fd=parent)
            self._folder = os.open(
                self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
            )
            undo.pop_all()
        return True

    def new_file(self) -> tuple[int, str]:
        """A descriptor and the name here of a new, empty file."""
        name = f"{next(self._numbers):06d}"
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=self._folder), name

    def spare_file(self) -> tuple[int, str]:
        """The same of a file to be written over: one that was handed back (see `hand_back`), or a new one."""
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            entered(self._root, f"{SCRATCH}/{_SPARE}", to_write=True) as folder,
        ):
            for spare in _list(folder):
                name = f"{next(self._numbers):06d}"
                with suppress(FileNotFoundError):  # another process took it
                    os.rename(spare, name, src_dir_fd=folder, dst_dir_fd=self._folder)
                    file = self._open_own(name)
                    if file is not None:
                        return file, name
        return self.new_file()

    def _open_own(self, name: str) -> int | None:
        """A file to be written over; None, and it is removed, where others would see that: it is a link or a pipe, has
        a second name, or belongs to another user.
        """
        with suppress(SpecError, OSError):
            file = open_regular(self._folder, name, self._root / SCRATCH, os.O_WRONLY | os.O_NOFOLLOW)
            found, mine = os.fstat(file), os.fstat(self._folder)
            if found.st_nlink == 1 and found.st_uid == mine.st_uid:
                return file
            os.close(file)
        _remove(self._folder, name)
        return None

    def link(self, name: str, folder: int, target: str) -> None:
        """Give a file a second name; raises `FileExistsError` where something has it."""
        os.link(name, target, src_dir_fd=self._folder, dst_dir_fd=folder, follow_symlinks=False)

    def rename(self, name: str, folder: int, target: str) -> None:
        """Give a file another name, whatever has it."""
        os.rename(name, target, src_dir_fd=self._folder, dst_dir_fd=folder)

    def remove_file(self, name: str) -> None:
        """Take a file's name here away, if it is there."""
        if self._folder != _GONE:
            _remove(self._folder, name)

    def let_go(self) -> None:
        """In a forked child: drop its share of the parent's lock, or the parent would seem to outlive itself."""
        os.close(self._lock)
        folder, self._folder = self._folder, _GONE
        os.close(folder)

    def remove(self) -> None:
        with suppress(FileNotFoundError), entered(self._root, SCRATCH, to_write=True) as parent:
            _remove_all(parent, self._name)
            _remove(parent, self._name + _LOCK)
        self.let_go()


def remove_dead_scratch(root: Path) -> None:
    """Remove the folders whose process is gone, and that which holds them when it is empty."""
    with suppress(FileNotFoundError, NotADirectoryError):
        with entered(root, SCRATCH, to_write=True) as parent:
            for name, lock in _open_locks(root, parent):
                if _lock_now(lock, fcntl.LOCK_SH):
                    _remove_tree(root, parent, name.removesuffix(_LOCK))
                    _remove(parent, name)
            _remove_tree(root, parent, _SPARE)
        folder, _, name = SCRATCH.rpartition("/")
        with suppress(OSError), entered(root, folder, to_write=True) as parent:
            os.rmdir(name, dir_fd=parent)


def _remove_tree(root: Path, parent: int, name: str) -> None:
    refuse_link(parent, name, root / SCRATCH / name)
    _remove_all(parent, name)


def _remove_all(parent: int, name: str) -> None:
    """Remove `name` and what is in it, as far as that is possible.

    Nothing is followed, and no pipe is waited for: the kernel opens `name` only if it is a folder itself, so nothing
    can be put in between a look and the opening. (`shutil.rmtree` of Python 3.11 opens a pipe, and waits for ever.)
    """
    with suppress(OSError, RecursionError):
        try:
            with listable(parent, name) as folder:
                for item in os.listdir(folder):  # noqa: PTH208  by its descriptor
                    _remove_all(folder, item)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            os.unlink(name, dir_fd=parent)
        else:
            os.rmdir(name, dir_fd=parent)


def hand_back(folder: int, name: str, root: Path) -> None:
    """Take a scratch file away; its pages serve the next one.

    Writing over a file costs a tenth of writing a new one, whose pages the kernel must find and clear: 0.1
    against 1 ns a byte (2026-11-21), 6 % of a run. A reader that has the file open sees foreign bytes, which its
    checksums tell.
    """
    try:
        with entered(root, f"{SCRATCH}/{_SPARE}", to_write=True, make=True) as spare:
            os.rename(name, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=spare)
    except (FileNotFoundError, NotADirectoryError):  # another run that ends removes the folders at any moment
        _remove(folder, name)


def has_live_writers(root: Path) -> bool:
    """Whether a process of this machine is writing below `root` right now."""
    with suppress(FileNotFoundError, NotADirectoryError), entered(root, SCRATCH) as parent:
        return any(not _lock_now(lock, fcntl.LOCK_SH) for _, lock in _open_locks(root, parent))
    return False


def _open_locks(root: Path, parent: int) -> Iterator[tuple[str, int]]:
    """The lock files in `parent`, each with a descriptor that is open until the next."""
    for name in _list(parent):
        if name.endswith(_LOCK):
            with suppress(FileNotFoundError), _opened(root, parent, name) as lock:
                yield name, lock


@contextmanager
def _opened(root: Path, parent: int, name: str) -> Iterator[int]:
    lock = open_regular(parent, name, root / SCRATCH / name, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        yield lock
    finally:
        os.close(lock)


def _list(parent: int) -> list[str]:
    with listable(parent) as folder:
        return os.listdir(folder)  # noqa: PTH208  by its descriptor


def _remove(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _make_root(root: Path) -> None:
    try:
        make_folder(root)
    except FileExistsError:
        try:
            is_folder = stat.S_ISDIR(root.stat().st_mode)  # one look: it may come and go between two
        except FileNotFoundError:
            _refuse_broken_link(root)  # otherwise another process removed it just now, and the next call finds that
        else:
            if not is_folder:
                raise


def _refuse_broken_link(path: Path) -> None:
    """Raise where `path` goes through a link to nothing: no folder can ever be made there."""
    for folder in (path, *path.parents):
        if folder.is_symlink() and not folder.exists():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a link to {folder.readlink()}, which does not exist")


def _lock_now(fd: int, kind: int) -> bool:
    """Take the owner's lock (`LOCK_EX`), or see that it has no owner (`LOCK_SH`: no looker seems one to another)."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(fd: int, parent: int, name: str) -> bool:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
