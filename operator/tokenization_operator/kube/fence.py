"""Whether this operator may write: always without a Lease, else until its last renewal is too old. No I/O.

The fence closes by itself. An operator that was frozen, or cut off from the API server, finds it closed before any
other one may hold the Lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf


class NotLeading(Exception):
    """Another operator may hold the Lease: nothing may be written."""


def uptime_s() -> float:
    """Seconds that no change of the time of day moves, and that go on while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Fence:
    """Open for ever, or until a moment of `clock`; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = uptime_s) -> None:
        self.clock = clock
        self._until = inf

    @property
    def is_open(self) -> bool:
        return self.clock() < self._until

    def open_until(self, moment: float) -> None:
        self._until = moment

    def close(self) -> None:
        self._until = -inf

    def left_s(self, most: float = inf) -> float:
        """How long a write may take, of `most`; raises `NotLeading` where none may begin."""
        left = self._until - self.clock()
        if left <= 0:
            raise NotLeading
        return min(most, left)
