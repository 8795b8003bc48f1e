"""Calls that run ahead of whoever needs their results, for stores that are far away.

Each call has a thread of its own, which is a daemon and ends with the call: nothing has to be shut down, and a
forked child inherits none. A result is handed out where it is needed, and so is an error. What nobody waits for any
more is dropped when it arrives.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from typing import NamedTuple, TypeVar

from tokenization_worker.errors import TemporaryError
from tokenization_worker.storage.retry import MOST_ASKED_S

PATIENCE_S = 300.0 + MOST_ASKED_S
"""How long one call may take, its repetitions included, also those that the service asks to be later: a body that comes
byte by byte breaks no other limit."""

T = TypeVar("T")


class Range(NamedTuple):
    """Bytes [start, end) of an object."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def start_call(call: Callable[[], T]) -> Future[T]:
    """Begin `call` in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=copy_context().run, args=(run,), name="ahead", daemon=True).start()
    return future


def describe_range(uri: str, block: Range) -> str:
    """For messages."""
    return f"{uri}: bytes [{block.start}, {block.end})"


def take_result(future: Future[T], what: str, patience_s: float) -> T:
    """What the call returned or raised; raises `TemporaryError` where that takes too long. `what`: for the message."""
    try:
        return future.result(patience_s)
    except TimeoutError as error:
        if future.done():  # it is the call's own
            raise
        raise TemporaryError(
            "StorageFailed",
            f"{what}: not done within {patience_s:g} s",
            next_step="start the same command again; what is done is kept",
        ) from error


class RangesAhead:
    """Ranges of one object under way, handed out in the order in which they were begun. Not for several threads."""

    def __init__(self, fetch: Callable[[int, int], bytes], uri: str, patience_s: float = PATIENCE_S) -> None:
        self._fetch = fetch
        self._uri = uri
        self._patience_s = patience_s
        self._under_way: deque[tuple[Range, Future[bytes]]] = deque()

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def next(self) -> Range | None:
        """The range that `take` hands out."""
        return self._under_way[0][0] if self._under_way else None

    @property
    def size_bytes(self) -> int:
        """Of all ranges under way."""
        return sum(block.size for block, _ in self._under_way)

    def begin(self, block: Range) -> None:
        self._under_way.append((block, start_call(lambda: self._fetch(*block))))

    def take(self) -> bytes:
        """The bytes of `next`; raises what its fetch raised."""
        block, data = self._under_way.popleft()
        return take_result(data, describe_range(self._uri, block), self._patience_s)

    def drop(self) -> None:
        """Forget `next`, wherever it is."""
        self._under_way.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._under_way.clear()


def join_ranges(ranges: Iterable[Range], most_bytes: int, most_gap: int = 0) -> Iterator[Range]:
    """Ascending ranges, joined where the gap between two is small and both fit into `most_bytes`."""
    joined: Range | None = None
    for block in ranges:
        if joined is not None and 0 <= block.start - joined.end <= most_gap and block.end - joined.start <= most_bytes:
            joined = Range(joined.start, block.end)
            continue
        if joined is not None:
            yield joined
        joined = block
    if joined is not None:
        yield joined


def split_ranges(ranges: Iterable[Range], most_bytes: int) -> Iterator[Range]:
    """Ranges of at most `most_bytes` that cover the same bytes, in the same order."""
    for start, end in ranges:
        for at in range(start, end, most_bytes):
            yield Range(at, min(at + most_bytes, end))
