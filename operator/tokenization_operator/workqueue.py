"""Keys that have to be looked at: each once, however often it is named, and by one worker at a time.

A key that is named while it is looked at is looked at again afterwards. One whose look failed comes back later, and
later each time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CALM_S = 1.0
"""Between two looks for news: a cluster that comes up is a dozen events within a second."""

FIRST_DELAY_S = 0.5
MOST_DELAY_S = 15.0
_MOST_REMEMBERED = 10_000


class WorkQueue(Generic[K]):
    """`look(key)` returns after how many seconds it wants to look again, or None; what it raises is told to `tell`."""

    def __init__(self, look: Callable[[K], Awaitable[float | None]], tell: Callable[[K, Exception], None]) -> None:
        self._look = look
        self._tell = tell
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._looked_at: dict[K, float] = {}
        self._changed = asyncio.Event()
        self._last_look_at = time.monotonic()

    @property
    def age_s(self) -> float:
        """Since the last look at any key."""
        return time.monotonic() - self._last_look_at

    def rest(self) -> None:
        """There is nothing to look at, which is as good as having looked."""
        self._last_look_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._due) + len(self._busy)

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Look at a key in `delay_s`, or sooner if that is wanted already."""
        at = time.monotonic() + delay_s
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heappush(self._heap, (at, next(self._numbers), key))
            self._changed.set()

    def notice(self, key: K) -> None:
        """There is news of a key: look at it, at the earliest `CALM_S` after the last look."""
        last = self._looked_at.get(key)
        self.add(key, 0.0 if last is None else max(0.0, last + CALM_S - time.monotonic()))

    async def run(self, workers: int) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._take()
            try:
                again_s = await self._look(key)
            except Exception as error:  # noqa: BLE001  one job's trouble is not the others'
                self._failures[key] = self._failures.get(key, 0) + 1
                self._tell(key, error)
                again_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2 ** min(self._failures[key], 20))
            else:
                self._failures.pop(key, None)
            finally:
                self._busy.discard(key)
                self._changed.set()
            self._last_look_at = time.monotonic()
            self._remember(key)
            if again_s is not None:
                self.add(key, again_s)

    def _remember(self, key: K) -> None:
        now = time.monotonic()
        if len(self._looked_at) > _MOST_REMEMBERED:
            self._looked_at = {key: at for key, at in self._looked_at.items() if at > now - CALM_S}
        self._looked_at[key] = now

    async def _take(self) -> K:
        while True:
            now = time.monotonic()
            held: list[tuple[float, int, K]] = []
            found: K | None = None
            while self._heap and self._heap[0][0] <= now:
                entry = heappop(self._heap)
                if self._due.get(entry[2]) != entry[0]:
                    continue  # it was wanted sooner, and is done
                if entry[2] in self._busy:
                    held.append(entry)
                    continue
                found = entry[2]
                break
            for entry in held:
                heappush(self._heap, entry)
            if found is not None:
                del self._due[found]
                self._busy.add(found)
                return found
            self._changed.clear()
            later = [at for at, _, key in self._heap if key not in self._busy]  # a busy one says so when it is done
            wait_s = max(0.0, min(later) - now) if later else None
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue
