"""What is being done, and how long it took: a line each, for a person who waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def step(words: str) -> Iterator[None]:
    """Say what is done now; its time when it is done, also by an error."""
    began = time.monotonic()
    try:
        yield
    except BaseException as error:
        _say(f"{time.monotonic() - began:7.1f} s  {words}: {type(error).__name__}")
        raise
    _say(f"{time.monotonic() - began:7.1f} s  {words}")


def note(words: str) -> None:
    """Say something that took no time."""
    _say(f"{'':10} {words}")


def _say(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)  # pytest keeps what is printed to sys.stderr
