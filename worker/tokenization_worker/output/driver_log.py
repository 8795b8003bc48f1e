"""Keeps the driver's log at the output: bounded, with times, without secrets.

`DriverLog` collects; it does no I/O. `write_log` and `read_log` are its way to the store and back. A log is a record of
one attempt, not part of the dataset: nothing reads it but people and `tokjob explain`.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from tokenization_worker.api.types.times import time_text
from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.messages.counts import counted
from tokenization_worker.messages.redact import redact
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store

MOST_BYTES = 16 << 20
"""Of text: half of it from the beginning, half from the end. A run of a day says less than 2 MiB."""

_MOST_LINE = 16 << 10
_MOST_HELD = 256 << 10
"""Letters of a line that are held until it ends: secrets are hidden before it is cut."""

_UNSURE = 4 << 10
"""Letters before the end of what is held: a secret that goes on behind it does not look like one."""

_MOST_NAMES = 100
_MOST_STORED = 64 << 20
_ADDRESS = re.compile(rf"(?P<output>.+)/(?P<path>{layout.LOGS}[0-9]+-[0-9]+(?:-[0-9]+)?\.log\.zst)")


class DriverLog:
    """Takes text in parts and keeps its first and its last lines; threads may write at the same time.

    A line gets the time of its end. Secrets are hidden in whole lines: a part may end within one.
    """

    def __init__(self, now: Callable[[], datetime], most_bytes: int = MOST_BYTES) -> None:
        self._now = now
        self._half = most_bytes // 2
        self._lock = threading.Lock()
        self._begun: list[str] = []
        self._begun_length = self._dropped = 0
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._first_bytes = self._last_bytes = 0
        self._left_out = self._left_out_bytes = 0

    def write(self, text: str) -> None:
        """Take a part of the output."""
        *ended, begun = text.split("\n")
        with self._lock:
            for part in ended:
                self._hold(part)
                self._end_line()
            self._hold(begun)

    def _hold(self, part: str) -> None:
        room = _MOST_HELD - self._begun_length
        self._begun.append(part[:room])
        self._begun_length += min(len(part), room)
        self._dropped += max(0, len(part) - room)

    def _end_line(self) -> None:
        line, dropped = redact("".join(self._begun)), self._dropped
        self._begun, self._begun_length, self._dropped = [], 0, 0
        shown = line[: min(_MOST_LINE, len(line) - _UNSURE) if dropped else _MOST_LINE]
        missing = len(line) - len(shown) + dropped
        if missing:
            shown = f"{shown} ... {missing:,} letters are left out"
        self._add(shown)

    def _add(self, line: str) -> None:
        data = f"{time_text(self._now())} {line}\n".encode(errors="backslashreplace")
        if not self._last and self._first_bytes + len(data) <= self._half:
            self._first.append(data)
            self._first_bytes += len(data)
            return
        self._last.append(data)
        self._last_bytes += len(data)
        while self._last_bytes > self._half:
            gone = len(self._last.popleft())
            self._last_bytes -= gone
            self._left_out += 1
            self._left_out_bytes += gone

    def content(self) -> bytes:
        """The text so far, in UTF-8."""
        with self._lock:
            if self._begun_length:
                self._end_line()
            between: list[bytes] = []
            if self._left_out:
                words = (
                    f"... {counted(self._left_out, 'line')} ({self._left_out_bytes:,} bytes) are left out here ...\n"
                )
                between.append(words.encode())
            return b"".join((*self._first, *between, *self._last))


def write_log(store: Store, run: int, attempt: int, content: bytes) -> str:
    """Create the log of an attempt; its URI. Never replaces one: an earlier job of this output may have left some."""
    data = zstd.compress(content)
    try:
        for number in range(1, _MOST_NAMES):
            path = layout.log_path(run, attempt, number)
            if create_bytes(store, path, data):
                return f"{store.uri}/{path}"
    finally:
        store.close_scratch()  # the run is over, and must not seem to go on where its process does
    message = f"{store.uri}/{layout.log_path(run, attempt)}: all {_MOST_NAMES - 1:,} names for this log are taken"
    raise TemporaryError("StorageFailed", message, next_step=f"delete old logs in {store.uri}/{layout.LOGS}")


def read_log(uri: str) -> str:
    """The text of a stored log. Raises `NotFound`, what a store raises, and `DataError` for what is none."""
    found = _ADDRESS.fullmatch(uri)
    if found is None:
        raise DataError("RecordCorrupt", f"{uri} is not the address of a driver's log")
    data = open_store(found["output"]).read(found["path"])
    try:
        text = zstd.ZstdDecompressor().decompress(data, max_length=_MOST_STORED)
    except zstd.ZstdError as error:
        raise DataError("RecordCorrupt", f"{uri} is corrupt: {error}") from error
    return text.decode(errors="backslashreplace")
