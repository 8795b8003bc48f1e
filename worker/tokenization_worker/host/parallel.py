"""Runs several calls at once in threads, for calls that wait for a network.

Results keep the order of their items, so nothing that is decided from them depends on which call was faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_at_once(call: Callable[[T], R], items: Iterable[T], at_once: int) -> Generator[R, None, None]:
    """`map` with up to `at_once` calls under way, each in a thread; 1: one after the other, in this thread.

    Raises the error of the first item that has one; then, and when it is not read to its end, no call is under way any
    more once it returns, but after a `KeyboardInterrupt`. Memory: `2 * at_once` results.
    """
    if at_once == 1:
        yield from map(call, items)
        return
    todo = iter(items)
    pool = ThreadPoolExecutor(at_once)  # it starts a thread where there is work for it
    is_interrupted = False

    def begin(item: T) -> Future[R]:
        return pool.submit(copy_context().run, call, item)  # the threads belong to the command of this one

    try:
        under_way: deque[Future[R]] = deque(begin(item) for item in islice(todo, 2 * at_once))
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(begin(item) for item in islice(todo, 1))
            yield result
    except KeyboardInterrupt:
        is_interrupted = True
        raise
    finally:
        pool.shutdown(wait=not is_interrupted, cancel_futures=True)


class MapAhead(Generic[T, R]):
    """A function whose answers for `expected` are asked for ahead of time, up to `at_once` of them at once.

    Its caller asks in that order; what was not expected then is found out on the spot.
    """

    def __init__(self, call: Callable[[T], R], expected: Sequence[T], at_once: int) -> None:
        self._call = call
        self._expected = expected
        self._asked = 0
        self._answers = map_at_once(call, expected, at_once)

    def __call__(self, item: T) -> R:
        if self._asked == len(self._expected) or self._expected[self._asked] is not item:
            return self._call(item)
        self._asked += 1
        return next(self._answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._answers.close()
