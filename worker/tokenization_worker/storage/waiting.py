"""Telling of calls that are tried again: whoever waits for minutes must know for what.

A warning of `logging`, which Python prints to standard error unless the program says otherwise.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TELL_AFTER_S = 4.0
"""What fails no longer than that is not worth a word: a busy store says so of many calls."""

TELL_AGAIN_S = 30.0
"""Between two warnings of a process: of a store that is away, all its calls would speak."""

_LOG = logging.getLogger(__name__)
_next_warning = 0.0
_lock = threading.Lock()


class _Call(threading.local):
    what = "reach a service"
    has_failed = False


_call = _Call()


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Name what this thread's calls within are about to do: a verb and a URI."""
    before, _call.what, _call.has_failed = _call.what, what, False
    try:
        yield
    finally:
        _call.what, _call.has_failed = before, False


def is_waiting() -> bool:
    """Whether a call of this thread has failed and is tried again: nothing is lost where that is given up."""
    return _call.has_failed


class Waiting:
    """One call and its tries, for `limit_s` in all; to be told of every error after which it is tried again."""

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._begin = clock()

    def __call__(self, error: Exception) -> None:
        _call.has_failed = True
        if self._clock() - self._begin >= TELL_AFTER_S and _may_warn():
            limit = "" if self._limit_s is None else f", for {self._limit_s:.0f} s in all"
            _LOG.warning("cannot %s yet: %s; trying again%s", _call.what, words_of(error), limit)


def _may_warn() -> bool:
    global _next_warning  # of the process: its threads fail together
    with _lock:
        now = time.monotonic()
        if now < _next_warning:
            return False
        _next_warning = now + TELL_AGAIN_S
        return True


def words_of(error: BaseException) -> str:
    """What is wrong, without addresses of requests, which may hold a secret; at most 500 characters."""
    inner = getattr(error.args[0], "reason", None) if error.args else None  # of what gave up connecting: why
    words = inner if isinstance(inner, Exception) else error
    return re.sub(r"https?://\S+", "", str(words))[:500] or type(error).__name__
