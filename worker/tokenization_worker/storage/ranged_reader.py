"""Remote files as raw streams, out of ranged reads. Knows no store.

`RemoteStream` is what all such streams have in common; `RangedReader` is the plain one, a request at a time.
"""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from collections.abc import Callable

FIRST_BYTES = 1 << 20
"""Bytes of a first read, and of one after a seek: the plan looks at heads and footers only."""

READ_BYTES = 8 << 20
"""Bytes of a read that goes on: far more than the 50 ms of a request are worth, and little memory."""


class RemoteStream(io.RawIOBase):
    """The file at `uri`, which has `size` bytes. A read takes what is buffered, at least a byte where there is one."""

    def __init__(self, uri: str, size: int) -> None:
        self._uri = uri
        self._size = size
        self._position = 0
        self._buffer = b""
        self._buffer_start = 0

    @abstractmethod
    def _fill(self, size: int) -> None:
        """Have the byte at the position in the buffer; `size` are asked for, of which fewer may be had."""

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


class RangedReader(RemoteStream):
    """`fetch(start, end)` gives exactly those bytes of the file. Memory: `READ_BYTES`, or the size of a larger read."""

    def __init__(self, uri: str, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__(uri, size)
        self._fetch = fetch
        self._next_bytes = FIRST_BYTES

    def _fill(self, size: int) -> None:
        goes_on = self._buffer != b"" and self._position == self._buffer_end
        self._next_bytes = min(2 * self._next_bytes, READ_BYTES) if goes_on else FIRST_BYTES
        self._buffer = b""  # freed before others come
        self._buffer = self._fetch(self._position, min(self._position + max(size, self._next_bytes), self._size))
        self._buffer_start = self._position
