"""The progress of a running task: reported at most once a second, and worthless once the task has ended.

A display asks for it, and nothing else: receipts alone say what is done. So it may be late, and it may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_S = 1.0
"""The shortest time between two reports of a worker; a batch in between reads the clock once (50 ns)."""

_MOST = 99
"""Percent of a range that its worker can have done before its receipt says that all of it is."""


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a task is since it began: source bytes that are done, and tokens."""

    source_bytes: int
    tokens: int


OnAdvance = Callable[[int, int], None]
"""Called with source bytes and tokens so far, as often as the caller likes."""


def ignore_advance(source_bytes: int, tokens: int) -> None:
    """For a task that nobody watches."""


class EverySecond:
    """An `OnAdvance` that sends at most each `INTERVAL_S` what it receives, first one interval after it began."""

    def __init__(self, send: Callable[[Advance], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._next = clock() + INTERVAL_S

    def __call__(self, source_bytes: int, tokens: int) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL_S
            self._send(Advance(source_bytes, tokens))


def stored_bytes_done(advance: Advance, stored_bytes: int, expansion: float) -> int:
    """How many of a range's stored bytes are done, by `expansion`: source bytes of one stored byte; 0: not known."""
    if expansion <= 0:
        return 0
    return min(int(advance.source_bytes / expansion), stored_bytes * _MOST // 100)
