"""How many bytes a running check has read, reported from its process: for a display, and worthless afterwards.

One pipe for all processes. A message has a fixed size below `PIPE_BUF`, so that those of several writers never mix.
Where the pipe is full it is dropped: nobody waits, and a writer that is killed leaves nothing behind.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

INTERVAL_S = 1.0

OnAdvance = Callable[[int], None]
"""Called with the bytes of a task that are read so far, as often as the caller likes."""

_MESSAGE = struct.Struct("<qq")
"""The task's number, and bytes."""

_AT_ONCE = 4096 * _MESSAGE.size


def ignore_advance(size: int) -> None:
    """For a check that nobody watches."""


class EverySecond:
    """An `OnAdvance` that sends what it receives, at most each `INTERVAL_S`."""

    def __init__(self, send: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._next = clock() + INTERVAL_S

    def __call__(self, size: int) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL_S
            self._send(size)


class Advances:
    """The reading end, and the bytes that each task has reported last. `writer` goes to the processes."""

    def __init__(self) -> None:
        self._reader, self.writer = Pipe(duplex=False)
        self.under_way: dict[int, int] = {}

    def read(self, running: set[int]) -> dict[int, int]:
        """Bytes by task, of those that are `running`."""
        poll = select.poll()
        poll.register(self._reader.fileno(), select.POLLIN)
        while poll.poll(0):
            data = os.read(self._reader.fileno(), _AT_ONCE)
            self.under_way.update(_MESSAGE.iter_unpack(data))
        self.under_way = {number: size for number, size in self.under_way.items() if number in running}
        return self.under_way

    def close(self) -> None:
        self._reader.close()
        self.writer.close()


def send(writer: Connection, number: int, size: int) -> None:
    """OnAdvance how far task `number` is."""
    os.set_blocking(writer.fileno(), False)
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(writer.fileno(), _MESSAGE.pack(number, size))
