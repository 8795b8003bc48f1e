"""Retries that take no time: a clock which only waiting moves."""

from __future__ import annotations

from dataclasses import dataclass

from tokenization_worker.storage.retry import Retry


@dataclass
class Clock:
    """Seconds, of which only waiting takes any."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def quick_retry() -> Retry:
    """The usual tries, one after the other."""
    clock = Clock()
    return Retry(clock=lambda: clock.now, sleep=clock.sleep)
