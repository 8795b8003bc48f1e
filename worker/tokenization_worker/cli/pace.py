"""Computes the recent speed and the time left. Seconds are arguments."""

from __future__ import annotations

from collections import deque

RATE_WINDOW_S = 30.0
"""So that the time left follows work that gets slower, and does not jump with each task that ends."""

FIRST_ETA_S = 3.0
"""In the first seconds workers load the tokenizer, and a time left would be of that."""


class Pace:
    """Amounts that were done by certain seconds. They may shrink, where work is lost."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._began_s = 0.0
        self._moved_s = 0.0

    @property
    def done(self) -> int:
        return self._samples[-1][1] if self._samples else 0

    def take(self, at_s: float, done: int) -> None:
        if not self._samples:
            self._began_s = at_s
        if not self._samples or done != self.done:
            self._moved_s = at_s
        self._samples.append((at_s, done))
        while len(self._samples) > 2 and self._samples[1][0] < at_s - RATE_WINDOW_S:
            self._samples.popleft()

    def restart(self) -> None:
        """What came before is no part of the pace."""
        self._samples.clear()

    @property
    def _span(self) -> tuple[float, int]:
        if not self._samples:
            return 0.0, 0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return last_s - first_s, last - first

    def per_second(self) -> float:
        """0 before there are two different seconds."""
        seconds, amount = self._span
        return max(0.0, amount / seconds) if seconds > 0 else 0.0

    def left_s(self, total: int) -> float | None:
        """Seconds until `total` is done; None where that cannot be said, or all is done.

        It cannot be said in the first seconds, and where nothing has moved for so long that all should be done by now.
        """
        left = total - self.done
        speed = self.per_second()
        if not self._samples or not speed or left <= 0:
            return None
        now_s = self._samples[-1][0]
        seconds = left / speed
        is_overdue = seconds < now_s - self._moved_s
        return None if is_overdue or now_s - self._began_s < FIRST_ETA_S else seconds
