"""Folders of a local store: making them so that they last, and locking them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, with names that survive a power failure.

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
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in `folder` are on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other replacing writers out of `folder`, between the look at a version and what is done to it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
