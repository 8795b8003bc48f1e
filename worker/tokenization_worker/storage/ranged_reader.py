"""Remote files as raw streams, out of ranged reads, the next ones under way while one is used. Knows no store.

What is read ahead is what the caller has announced (`expect`), or the rest of the file once it has been read on
without a gap for `FIRST_BYTES`. So whoever looks at a footer, a head or a column costs no more than that.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator

from tokenization_worker.storage.ahead import (
    PATIENCE_S,
    Range,
    RangesAhead,
    describe_range,
    join_ranges,
    split_ranges,
    start_call,
    take_result,
)

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
        """See `base.ReadsAhead`. What is not in the file (a damaged footer may say anything) is left out."""
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
