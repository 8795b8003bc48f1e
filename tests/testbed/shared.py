"""One test bed for all processes of a test session: the first one starts it, the last one stops it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.cluster import Testbed
from testbed.programs import find_programs

CRDS = Path(__file__).parents[2] / "crds"


@contextmanager
def shared_bed(folder: Path) -> Iterator[Testbed]:
    """The session's test bed; `folder` is the same for all its processes. Raises `Unavailable`."""
    programs = find_programs()
    folder.mkdir(parents=True, exist_ok=True)
    users = folder / "users.json"
    with _locked(folder):  # `Testbed` makes its folder, which `up` of another process removes first
        bed = Testbed(folder / "bed", programs)
        if not _read(users):
            bed.up(sorted(CRDS.glob("*.yaml")))
        else:
            bed.join()
        _write(users, [*_read(users), os.getpid()])
    try:
        yield bed
    finally:
        with _locked(folder):
            left = [pid for pid in _read(users) if pid != os.getpid()]
            _write(users, left)
            if not left:
                bed.down()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[int]:
    return json.loads(path.read_text(encoding="ascii")) if path.exists() else []


def _write(path: Path, pids: list[int]) -> None:
    path.write_text(json.dumps(pids), encoding="ascii")
