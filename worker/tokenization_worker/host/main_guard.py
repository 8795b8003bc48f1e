"""Detects scripts that call this package at their top level: spawned worker processes import the script again.

Such an import would run the whole job in every worker, and Python forbids that with a message for those who know
`multiprocessing`. Here the worker ends with a code that only its parent knows, and the parent says what to write.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from tokenization_worker.errors import SpecError

_NAME = "tokenization-worker"

EXIT_CODE = 78
"""Of a worker that was asked to run a job while it imported the script. No signal, and none of Python's own."""

_first: Callable[[], None] | None = None


def call_first_in_workers(call: Callable[[], None]) -> None:
    """Let every worker that is spawned from now on begin with `call`, which is pickled by its name."""
    global _first
    _first = call


class SpawnedWorker(SpawnProcess):
    """A process that knows whose it is before it imports the script."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.name = _NAME
        self._first = _first

    def run(self) -> None:
        if self._first is not None:
            self._first()
        super().run()


class WorkerContext(SpawnContext):
    """Starts processes from scratch, as this package's workers."""

    Process = SpawnedWorker


def require_importable_main() -> None:
    """Raise `SpecError` where workers that are started from scratch could not import the program: it has no file."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None and not Path(script).exists():
        raise SpecError(
            "MainGuardMissing",
            f"the program comes from {Path(script).name}, and worker processes cannot import that",
            next_step='save the program as a file, and put the call below if __name__ == "__main__":',
        )


def require_main_guard(function: str) -> None:
    """Go on, unless this process is only importing the script of its parent: then nothing may be started.

    Ends a worker of this package with `EXIT_CODE`; raises `SpecError` in a process that another program has started.
    """
    process = multiprocessing.current_process()
    if not getattr(process, "_inheriting", False):  # as multiprocessing.spawn itself asks
        return
    if process.name == _NAME:
        raise SystemExit(EXIT_CODE)  # not an Exception: a script that catches those must not go on
    raise guard_missing(function)


def guard_missing(function: str) -> SpecError:
    """The error for a script that calls `function` whenever it is imported."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    where = Path(script).absolute() if script else "the script"
    return SpecError(
        "MainGuardMissing",
        f"{where} calls {function} at its top level, and every worker process imports that file: it would call "
        f"{function} again",
        next_step=f'put {function} below if __name__ == "__main__":',
    )
