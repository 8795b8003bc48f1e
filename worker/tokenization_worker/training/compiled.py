"""Compiles functions of this room with numba, and keeps the machine code for later processes.

The code is kept below `$XDG_CACHE_HOME/tokenization`, in a folder of these sources: numba compares one file alone, and
functions of several files are compiled into one. Where no folder can be written each process compiles anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.host.kept_files import kept_folder

F = TypeVar("F", bound=Callable[..., object])

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

READ_AHEAD = 64
"""Places in memory that a loop reads before it uses them: the processor waits for all of them at once, and not for one
after another."""


def _keep_code() -> bool:
    """Tell numba where to keep code; whether there is such a place."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    folder = kept_folder(f"compiled-{hashlib.sha256(sources).hexdigest()[:16]}")
    if folder is None:
        return False
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))  # processes that this one starts keep to it, too
    return True


_IS_KEPT = _keep_code()

import numba  # noqa: E402  it reads its environment now


def compiled(function: F) -> F:
    """`function` as machine code, made at its first call."""
    return cast(F, numba.njit(cache=_IS_KEPT)(function))


def borrowing(function: F) -> F:
    """As `compiled`, for a function that makes no array: it counts no references to its arguments.

    Else numba counts them, atomically and at each call, in functions that branch (its issue 2350). Without that,
    counting is 1.03 (Cl100k) to 1.2 (O200k) times as fast. 2026-11-29
    """
    options: dict[str, Any] = {"cache": _IS_KEPT, "_nrt": False}
    return cast(F, numba.njit(**options)(function))


def inlined(function: F) -> F:
    """`function` as a part of each compiled function that calls it."""
    return cast(F, numba.njit(inline="always")(function))
