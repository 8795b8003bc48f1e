"""Opens folders of a local store one by one, so that no link leads out of the output.

`output.uri` itself is the user's: links in it and above it are followed. Below it a folder is entered from the one
that is open already, by its own name. Below `_tokenization` no link is followed at all, and outside of it only to
read: a run creates, replaces and deletes nothing behind a link. What is no regular file is never opened for its
bytes. A process that writes below `_tokenization` owns its folders, or shares them with a group.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenization_worker.errors import SpecError

OWN = "_tokenization"

_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Enough to go on from a folder that may be entered and not listed."""

_OPEN = os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe does not wait for a process at its other end."""

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_NO_LINKS = (
    "replace the link with the folder itself. To store the output elsewhere, make output.uri a folder there, or a link "
    "to one: scratch and shards must be on one file system, because tokjob publishes finished files by hard links"
)


def make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, with names that survive a power failure; links are followed.

    One that is there costs no more than `mkdir`. A new one is synced whoever makes it: also a folder that is made for
    scratch comes to hold what must last.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # one that may be written and not read cannot be synced
        fd = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def entered(root: Path, folder: str, *, to_write: bool = False, make: bool = False) -> Iterator[int]:
    """A descriptor of `folder` ("" for `root` itself), which is open as long as the block runs.

    `to_write`: to create, replace or delete in it. Then no link below `root` is followed, and a folder of ours that
    belongs to another user is refused. `make`: also make what is missing, but for `root`, with names that survive a
    power failure. Raises `FileNotFoundError`, and `SpecError` for what is refused.
    """
    fd = os.open(root, _ENTER)
    try:
        names = folder.split("/") if folder else []
        is_ours = bool(names) and names[0] == OWN
        flags = _ENTER | os.O_NOFOLLOW if to_write or is_ours else _ENTER
        for number, name in enumerate(names):
            try:
                inner = _enter(fd, name, flags, make=make)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP) and flags & os.O_NOFOLLOW:
                    refuse_link(fd, name, Path(root, *names[: number + 1]))
                raise
            os.close(fd)
            fd = inner
            if to_write and is_ours:
                _require_own(fd, root, names[: number + 1])
        yield fd
    finally:
        os.close(fd)


def _enter(fd: int, name: str, flags: int, *, make: bool) -> int:
    if name == "..":
        raise NotADirectoryError(errno.ENOTDIR, "its path leads out of the output")
    try:
        return os.open(name, flags, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another writer was first
        os.mkdir(name, dir_fd=fd)
    with suppress(PermissionError):
        sync_folder(fd)
    return os.open(name, flags, dir_fd=fd)


def refuse_link(fd: int, name: str, path: Path) -> None:
    """Raise `SpecError` if `name` in the folder `fd` is a link; `path` is what the message calls it."""
    try:
        target = os.readlink(name, dir_fd=fd)
    except OSError:  # it is none
        return
    raise SpecError(
        "OutputUnsafe",
        f"{path} is a link (to {target}): tokjob does not write through links below output.uri, and does not read "
        f"links below {OWN}",
        next_step=_NO_LINKS,
    )


def refuse_kind(mode: int, path: Path) -> None:
    """Raise `SpecError` for a pipe, socket or device, from which no bytes of ours can come."""
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise SpecError(
            "OutputUnsafe",
            f"{path} is {kind}, expected a file that tokjob wrote",
            next_step=f"find out who made it and why, remove it (rm {path}), and start the same command again",
        )


@contextmanager
def opened_file(root: Path, path: str) -> Iterator[int]:
    """A descriptor of the regular file at `path` below `root`, to read from.

    Raises `FileNotFoundError`, `IsADirectoryError`, and `SpecError` for what is neither.
    """
    folder, _, name = path.rpartition("/")
    with entered(root, folder) as parent:
        fd = open_regular(parent, name, root / path, os.O_RDONLY | (os.O_NOFOLLOW if is_own(path) else 0))
    try:
        yield fd
    finally:
        os.close(fd)


def is_own(path: str) -> bool:
    """Whether `path`, relative to the output, lies below `_tokenization`."""
    return path == OWN or path.startswith(f"{OWN}/")


def open_regular(folder: int, name: str, path: Path, flags: int) -> int:
    """A descriptor of the regular file `name` in `folder`; raises `SpecError` for a link or what else is no file."""
    try:
        fd = os.open(name, flags | _OPEN, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(folder, name, path)
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket, a pipe that nobody reads, a device that is gone
            refuse_kind(os.stat(name, dir_fd=folder).st_mode, path)
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    refuse_kind(mode, path)
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def sync_folder(fd: int) -> None:
    """Return when the names in a folder are on the disk."""
    with listable(fd) as folder:
        os.fsync(folder)


@contextmanager
def listable(fd: int, name: str = ".") -> Iterator[int]:
    """A descriptor of a folder, or of `name` in it, that can be listed, synced and locked."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        yield folder
    finally:
        os.close(folder)


def refuse_linked_folders(root: Path, folders: Iterable[str]) -> None:
    """Raise `SpecError` where a run could not write in one of these folders below `root` because of a link."""
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError), entered(root, folder, to_write=True):
            pass


def remove_empty_folders(root: Path, folders: Iterable[str]) -> None:
    """Remove those of `folders` below `root` that are empty, and all empty ones below `_tokenization`."""
    with suppress(OSError), entered(root, "", to_write=True) as fd:
        _remove_empty(fd, OWN)
    for folder in sorted(folders, key=lambda folder: -folder.count("/")):
        parent, _, name = folder.rpartition("/")
        with suppress(OSError), entered(root, parent, to_write=True) as fd:
            os.rmdir(name, dir_fd=fd)


def _remove_empty(parent: int, name: str) -> None:
    with suppress(OSError):  # it is a link or no folder, or another run removes it, too
        with listable(parent, name) as fd, os.scandir(fd) as items:
            for item in [item for item in items if item.is_dir(follow_symlinks=False)]:
                _remove_empty(fd, item.name)
        os.rmdir(name, dir_fd=parent)


@contextmanager
def locked_folder(fd: int) -> Iterator[None]:
    """Keep other replacing writers out of a folder, between the look at a version and what is done to it."""
    with listable(fd) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _require_own(fd: int, root: Path, names: list[str]) -> None:
    """Raise `SpecError` unless this user may rely on a folder of ours: it is this user's or root's, or its owner lets a
    group write that this user is in. Root relies on all: nothing is followed, and its outputs are often other users'.
    """
    status = os.fstat(fd)
    user = os.geteuid()
    if user == 0 or status.st_uid in (user, 0):
        return
    if status.st_mode & stat.S_IWGRP and status.st_gid in (os.getegid(), *os.getgroups()):
        return
    if status.st_uid == _owner_of_new_files(fd):
        return
    path = Path(root, *names)
    raise SpecError(
        "OutputUnsafe",
        f"{path} belongs to user {_name_of(status.st_uid)}, and this process runs as user {_name_of(user)}: its owner "
        "could change what is written there",
        next_step="run as that user, or write to another output.uri. For several users: a group that both are in and "
        f"that may write (chgrp -R GROUP and chmod -R g+ws on {path}, umask 002)",
    )


def _owner_of_new_files(fd: int) -> int | None:
    """Whose a file of ours is on this file system: some show other owners than the users of this machine."""
    name = f".owner-{secrets.token_hex(8)}"
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
    except OSError:  # what cannot be written will say so itself
        return None
    try:
        os.unlink(name, dir_fd=fd)
        return os.fstat(file).st_uid
    finally:
        os.close(file)


def _name_of(user: int) -> str:
    try:
        return f"{user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return str(user)
