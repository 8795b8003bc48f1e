"""Handles signals while Ray starts: Ray takes SIGTERM for itself, and ignores Ctrl-C for seconds."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TELL_AFTER_S = 1.0
"""A stop that takes longer needs a word."""

_LOG = logging.getLogger(__name__)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it connects, and would end the process without a word to the run."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextmanager
def announcing_stops() -> Iterator[None]:
    """Say within a second what a stop waits for, and end at once at a second one.

    Ray spends seconds of its start in calls that no handler of Python interrupts. A signal's number gets
    into a pipe all the same, which a thread reads. What Ray has started by then, its reaper ends with this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch_stops, args=(reader, is_over), name="stops", daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _watch_stops(reader: int, is_over: threading.Event) -> None:
    stops = 0
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number in (signal.SIGINT, signal.SIGTERM) and not is_over.is_set():
                stops += 1
                if stops > 1:
                    os._exit(128 + number)
                if not is_over.wait(_TELL_AFTER_S):
                    _LOG.warning("Ray is starting; the run stops when Ray answers. Press Ctrl-C again to stop now")
