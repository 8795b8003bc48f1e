"""A queue of keys to reconcile: each key at most once, and by one worker at a time.

A key added while it is reconciled is reconciled again afterwards. After a failure a key returns with increasing delay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CALM_S = 1.0
"""Minimum time between two reconciles of one key for events: a starting cluster posts a dozen events within a second.
"""

FIRST_DELAY_S = 0.5
MOST_DELAY_S = 15.0
_MOST_REMEMBERED = 10_000
_MOST_STALE = 64


class NotReconciled(Exception):
    """The key was skipped: another operator reconciles it."""


class WorkQueue(Generic[K]):
    """`reconcile(key)` returns the seconds until its next call, or None; its exceptions go to `on_error`."""

    def __init__(
        self, reconcile: Callable[[K], Awaitable[float | None]], on_error: Callable[[K, Exception], None]
    ) -> None:
        self._reconcile = reconcile
        self._on_error = on_error
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()
        self._busy: set[K] = set()
        self._again: dict[K, float] = {}  # busy keys, and when each is due next
        self._failures: dict[K, int] = {}
        self._reconciled_at: dict[K, float] = {}
        self._changed = asyncio.Event()
        self._last_reconcile_at = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the last reconcile of any key."""
        return time.monotonic() - self._last_reconcile_at

    def rest(self) -> None:
        """Note that nothing is due, which counts as a reconcile for `age_s`."""
        self._last_reconcile_at = time.monotonic()

    @property
    def waiting(self) -> int:
        """The number of due keys that no worker has taken. Safe to call from another thread: it counts a copy."""
        now = time.monotonic()
        return sum(at <= now for at in self._due.copy().values())

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Reconcile a key in `delay_s`, or earlier if it is due earlier."""
        self._want(key, time.monotonic() + delay_s)

    def _want(self, key: K, at: float) -> None:
        wanted = self._again if key in self._busy else self._due
        if at >= wanted.get(key, float("inf")):
            return
        wanted[key] = at
        if wanted is self._due:
            heappush(self._heap, (at, next(self._numbers), key))
            if len(self._heap) > 2 * len(self._due) + _MOST_STALE:  # entries replaced by earlier ones
                self._heap = sorted((due, next(self._numbers), each) for each, due in self._due.items())
            self._changed.set()

    def notice(self, key: K) -> None:
        """Reconcile a key for an event, at least `CALM_S` after its last reconcile."""
        last = self._reconciled_at.get(key)
        self.add(key, 0.0 if last is None else max(0.0, last + CALM_S - time.monotonic()))

    async def run(self, workers: int) -> None:
        """Reconcile due keys until cancelled, up to `workers` at once."""
        free = asyncio.Semaphore(workers)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                key = await self._take()
                group.create_task(self._work(key)).add_done_callback(lambda _: free.release())

    async def _work(self, key: K) -> None:
        try:
            requeue_after_s = await self._reconcile(key)
        except NotReconciled:
            return
        except Exception as error:  # noqa: BLE001  one job's error must not stop the others
            self._failures[key] = self._failures.get(key, 0) + 1
            self._on_error(key, error)
            requeue_after_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2 ** min(self._failures[key], 20))
        else:
            self._failures.pop(key, None)
        finally:
            self._busy.discard(key)
            if key in self._again:
                self._want(key, self._again.pop(key))
        self._last_reconcile_at = time.monotonic()
        self._remember(key)
        if requeue_after_s is not None:
            self.add(key, requeue_after_s)

    def _remember(self, key: K) -> None:
        now = time.monotonic()
        if len(self._reconciled_at) > _MOST_REMEMBERED:
            self._reconciled_at = {key: at for key, at in self._reconciled_at.items() if at > now - CALM_S}
        self._reconciled_at[key] = now

    async def _take(self) -> K:
        """Wait for the next due key."""
        while True:
            while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                heappop(self._heap)  # replaced by an earlier entry, done already
            wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
            if wait_s is not None and wait_s <= 0:
                _, _, key = heappop(self._heap)
                del self._due[key]
                self._busy.add(key)
                return key
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
