"""Trying again what failed for a while: the one place for clients whose own retries have no end in time.

Waits grow from one try to the next and are random below that, so that a thousand workers do not come back at
once. A service that says how long to wait (a rate limit's window) is waited for, beyond the usual end where need be.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tokenization_worker.storage.waiting import Waiting

T = TypeVar("T")

_CHANCE = random.Random()  # its own: the random numbers of the process are whoever seeded them

MOST_ASKED_S = 330.0
"""What a service may ask for in all: rate limits count in windows of 300 s, and more is not worth holding a worker."""


def asked_wait(retry_after: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """The seconds that a service asks for in a Retry-After header, a number or a date; 0 for none, or for nonsense."""
    text = (retry_after or "").strip()
    if text.isdecimal() and text.isascii():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now()).total_seconds())


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to go on: no try begins later than `limit_s` after the first one, but for waits that were asked for."""

    limit_s: float = 120.0
    first_s: float = 1.0
    most_s: float = 20.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = _CHANCE.random

    def call(self, attempt: Callable[[], T], wait_of: Callable[[Exception], float | None]) -> T:
        """What `attempt` returns. `wait_of` an error: None to raise it, else the seconds that were asked for, or 0."""
        begin = self.clock()
        end = begin + self.limit_s
        last = end + MOST_ASKED_S
        step = self.first_s
        with Waiting(self.limit_s, self.clock) as tell:
            while True:
                try:
                    return attempt()
                except Exception as error:
                    asked = wait_of(error)
                    if asked is None:
                        raise
                    wait = asked + step * (0.5 + self.chance() / 2)
                    end = min(end + asked, last)
                    if self.clock() + wait > end:
                        raise
                    tell(error, end - begin)
                self.sleep(wait)
                step = min(2 * step, self.most_s)
