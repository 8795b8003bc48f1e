"""What a process keeps open or in memory: the values used last, at most a given number of them.

Threads share it. One lock guards all of them, and a fork waits for it, so that no child finds it held by a thread that
the child does not have. Nothing is opened or read while it is held: two threads may make the same value twice.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_lock = threading.RLock()
"""Reentrant: the garbage collector may end a stream, which removes its values, in a thread that holds the lock."""

os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key; `most` says at each `add` how many stay, at least 1. The one used longest ago goes first."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with _lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def add(self, key: K, value: V) -> None:
        most = self._most()
        with _lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > most:
                self._values.popitem(last=False)

    def remove(self, is_gone: Callable[[K], bool]) -> None:
        with _lock:
            for key in list(self._values):  # a finalizer may remove others meanwhile
                if is_gone(key):
                    self._values.pop(key, None)
