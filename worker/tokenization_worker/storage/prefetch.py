"""Reads ahead in remote files: starts calls before their results are needed, and makes a raw stream of them.

Each call has a thread of its own, which is a daemon and ends with the call: nothing has to be shut down, and a
forked child inherits none. A result is handed out where it is needed, and so is an error. What nobody waits for any
more is dropped when it arrives. `RangedReader` reads ahead what its caller has announced (`expect`), or the rest of the
file once it has been read on without a gap for `FIRST_BYTES`: to look at a footer, a head or a column costs no more
than that. It knows no store.
"""

from __future__ import annotations

import io
import os
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
        except BaseException as error:  # noqa: BLE001  the reader of the result gets it
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
            f"{what}: did not finish within {patience_s:g} s",
            next_step="start the same command again; finished work is kept",
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


FIRST_BYTES = 1 << 20
"""Bytes of a first read, and of one after a seek: the plan looks at heads and footers only."""

BLOCK_BYTES = 4 << 20
"""Bytes of a read of those under way."""

BLOCKS_AHEAD = 4
"""Reads under way at most, of `BLOCK_BYTES` each: with one block in use this is the memory of a stream."""

_GAP_BYTES = 512 << 10
"""Announced ranges that are as near as this are read as one: less than what comes in the time of a request."""


class RangedReader(io.RawIOBase):
    """The file at `uri`, which has `size` bytes; `fetch(start, end)` gives exactly those of them, from any thread.

    A read takes what is buffered, at least a byte where there is one. Memory: `BLOCK_BYTES * (BLOCKS_AHEAD + 1)`, or
    the size of a larger read. Raises what `fetch` raises, and `TemporaryError` where that takes `patience_s`.
    """

    def __init__(
        self, uri: str, size: int, fetch: Callable[[int, int], bytes], *, patience_s: float = PATIENCE_S
    ) -> None:
        self._uri = uri
        self._size = size
        self._fetch = fetch
        self.patience_s = patience_s
        self._position = 0
        self._buffer = b""
        self._buffer_start = 0
        self._unannounced_bytes = 0  # read last in one run, without a word or a guess
        self._ahead = RangesAhead(fetch, uri, patience_s)
        self._to_begin: Iterator[Range] = iter(())
        self._is_announced = False

    @property
    def _buffer_end(self) -> int:
        return self._buffer_start + len(self._buffer)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self._uri}: cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        if self.closed:
            raise ValueError(f"{self._uri}: read of a closed stream")
        if size < 0:
            return self.readall()
        if size == 0 or self._position >= self._size:
            return b""
        if not self._buffer_start <= self._position < self._buffer_end:
            self._fill(size)
        skip = self._position - self._buffer_start
        data = self._buffer[skip : skip + size]
        self._position += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """What is under way is not waited for: it ends by itself, and is dropped."""
        self._ahead.clear()
        self._to_begin = iter(())
        self._buffer = b""
        super().close()

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """See `base.ReadsAhead`. What is not in the file (a corrupt footer may say anything) is left out."""
        self._read_ahead(Range(max(0, start), min(end, self._size)) for start, end in ranges)
        self._is_announced = True

    def _read_ahead(self, ranges: Iterable[Range]) -> None:
        """Begin to read these, but for what is in the buffer."""
        held = Range(self._buffer_start, self._buffer_end)
        rest = (Range(held.end, end) if held.start <= start < held.end else Range(start, end) for start, end in ranges)
        joined = join_ranges((each for each in rest if each.start < each.end), self._size, _GAP_BYTES)
        self._ahead.clear()
        self._to_begin = split_ranges(joined, BLOCK_BYTES)
        self._begin_more()

    def _begin_more(self) -> None:
        while len(self._ahead) < BLOCKS_AHEAD and (block := next(self._to_begin, None)) is not None:
            self._ahead.begin(block)

    def _fill(self, size: int) -> None:
        """Have the byte at the position in the buffer."""
        position = self._position
        goes_on = position == self._buffer_end
        self._buffer_start, self._buffer = self._buffer_end, b""  # free the bytes before others come
        while (block := self._ahead.next) is not None and block.end <= position:
            self._ahead.drop()  # passed over
            self._begin_more()
        is_under_way = block is not None and block.start <= position
        if not is_under_way and not (block is not None and self._is_announced):
            self._ahead.clear()
            self._to_begin = iter(())
            self._is_announced = False
            if goes_on and self._unannounced_bytes >= FIRST_BYTES:
                self._read_ahead([Range(position, self._size)])
        if (block := self._ahead.next) is not None and block.start <= position:
            self._unannounced_bytes = 0
            data = self._ahead.take()
            self._begin_more()
        else:
            block = Range(position, min(position + max(size, FIRST_BYTES), self._size))
            self._unannounced_bytes = self._unannounced_bytes + block.size if goes_on else block.size
            call = start_call(lambda: self._fetch(*block))
            data = take_result(call, describe_range(self._uri, block), self.patience_s)
        self._arrived(block.start, data)
        self._buffer_start, self._buffer = block.start, data

    def _arrived(self, start: int, data: bytes) -> None:
        """Called with all bytes, in the order in which they are used."""
