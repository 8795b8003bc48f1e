"""Files that this host keeps between runs (rank files, engine verdicts, behaviours), each written atomically.

Kept facts are JSON objects below `$XDG_CACHE_HOME/tokenization` (else `~/.cache`), or in a folder of this user's own in
the temporary folder where that cannot be written. They are a cache: an entry that cannot be read counts as none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

_LOCK_POLL_S = 0.1


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others may read at any time, making its folder where needed; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_fact(kind: str, key: Mapping[str, object]) -> dict[str, Any] | None:
    """The fact of this kind that was kept under `key`; None where there is none that can be read."""
    path = _fact_path(kind, key)
    try:
        stored = orjson.loads(path.read_bytes()) if path is not None else None
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) else None


def keep_fact(kind: str, key: Mapping[str, object], fact: Mapping[str, object]) -> None:
    """Keep a fact for later runs on this host; where that is not possible, they find it out again."""
    path = _fact_path(kind, key)
    if path is None:
        return
    try:
        write_whole(path, orjson.dumps({**key, **fact}, option=orjson.OPT_INDENT_2))
    except OSError:
        return  # a cache: without it the next run works the fact out again


@contextmanager
def finding_out(kind: str, key: Mapping[str, object], patience_s: float) -> Iterator[None]:
    """One process of this host at a time finds out a fact; the others wait for it, for up to `patience_s`.

    The kernel drops the lock when its process dies. Look for the fact again inside the block.
    """
    path = _fact_path(kind, key)
    lock = None if path is None else _open_lock(path.parents[1] / "locks" / f"{kind}-{path.stem}")
    if lock is None:
        yield
        return
    try:
        deadline = time.monotonic() + patience_s
        while not _take(lock) and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(lock)


def _open_lock(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def kept_folder(name: str) -> Path | None:
    """A folder of this name for files that a library keeps; None where nothing can be written."""
    folder = _folder()
    if folder is None:
        return None
    try:
        (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / name


def _fact_path(kind: str, key: Mapping[str, object]) -> Path | None:
    folder = _folder()
    digest = hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return None if folder is None else folder / kind / f"{digest}.json"


def _folder() -> Path | None:
    """Where facts are kept on this host; None where there is no such place."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "tokenization"
    except RuntimeError:  # no home
        return _temporary_folder()
    return folder if _can_write(folder) else _temporary_folder()


def _can_write(folder: Path) -> bool:
    """Whether `folder` can be written, or made."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    except OSError:
        return False


def _temporary_folder() -> Path | None:
    """A folder that only this user can write: a foreign verdict must not be believed."""
    try:
        folder = Path(tempfile.gettempdir(), f"tokenization-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_ours else None
