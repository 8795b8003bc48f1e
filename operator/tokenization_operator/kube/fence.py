"""Decides whether this operator may write: always without a Lease, otherwise until its last renewal is too old. No I/O.

The fence closes by itself: an operator that was frozen or partitioned finds it closed before another operator can hold
the Lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf


class NotLeading(Exception):
    """Another operator may hold the Lease: this one must not write."""


def uptime_s() -> float:
    """Seconds of a clock that cannot be set and that counts while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Fence:
    """Open for ever, or until a time on `clock`. Safe to use from several threads."""

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
        """The time left for a write, at most `most`. Raises `NotLeading` if no write may start."""
        left = self._until - self.clock()
        if left <= 0:
            raise NotLeading
        return min(most, left)
