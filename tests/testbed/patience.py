"""Patience that a pause of the whole machine, in which nothing could happen, hardly uses up."""

from __future__ import annotations

import time

_MOST_STEP_S = 10.0
"""What the time between two looks counts at most: longer than a look takes on a busy machine."""


class Patience:
    """So many seconds, of which each call of `is_over` takes the time since the one before."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._last = time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        self._left -= min(now - self._last, _MOST_STEP_S)
        self._last = now
        return self._left <= 0
