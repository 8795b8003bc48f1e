"""The stop token of a command: whether a stop was requested, and how long parts may still wait.

A `StopToken` is current within its `with` block: in that thread, and in the calls that the thread hands to others
(`host.parallel`, `storage.prefetch`). What waits for a service asks the current token. Without one, nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

_CURRENT: ContextVar[StopToken | None] = ContextVar("stop", default=None)


def current_stop() -> StopToken | None:
    """The token of the command that this thread works for."""
    return _CURRENT.get()


class StopToken:
    """Whether a command was asked to stop. A signal handler may call `stop` at any moment."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._waits: set[object] = set()
        self._is_stuck = False
        self._before: Token[StopToken | None] | None = None

    def __enter__(self) -> Self:
        self._before = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._before is not None
        _CURRENT.reset(self._before)

    def stop(self) -> bool:
        """Leave all waits from now on; whether one is under way."""
        self.is_stopped = True
        return self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """Whether any thread of the command is in a wait that may be left."""
        return bool(self._waits)

    def begin_wait(self, wait: object) -> None:
        """Take note of a wait that may be left. Raises `KeyboardInterrupt` where the command was asked to stop."""
        if self.is_stopped:
            raise KeyboardInterrupt
        self._waits.add(wait)

    def end_wait(self, wait: object) -> None:
        self._waits.discard(wait)

    def never_ends(self) -> None:
        """Take note that the process cannot end in order any more: a library would wait for ever."""
        self._is_stuck = True

    @property
    def must_leave(self) -> bool:
        """Whether the process must end without waiting for its threads and its libraries."""
        return self._is_stuck or self.is_waiting


@contextmanager
def left_when_stopped() -> Iterator[None]:
    """For a wait of the main thread that may be left anywhere: a handler that finds it raises `KeyboardInterrupt`.

    Raises it at once where the command was asked to stop before.
    """
    stop, wait = current_stop(), object()
    if stop is None:
        yield
        return
    stop.begin_wait(wait)
    try:
        yield
    finally:
        stop.end_wait(wait)
