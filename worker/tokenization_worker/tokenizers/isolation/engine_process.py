"""The process that `supervisor` starts: encodes one text at a time, until its worker ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import portable

OUT_OF_MEMORY = 71
"""Exit code of a process that got no more memory: its engines may be broken, so it goes on with nothing."""


class Role(StrEnum):
    """Which of a run's engines."""

    ENGINE = "engine"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Start:
    """What to load, and how many bytes of memory to take beyond that. `limit_s`: as that of a tokenizer's
    `limited_reference`; None for the reference as it is."""

    tokenizer: TokenizerSpec
    engine: str
    memory_bytes: int
    limit_s: float | None = None


def main(fd: int) -> None:
    """Serve the worker at the other end of `fd`, and end with it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_worker, args=(fd,), daemon=True).start()
    pipe = Connection(fd)
    try:
        _serve(pipe)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except (EOFError, OSError):
        os._exit(1)  # the worker is gone


def _serve(pipe: Connection) -> None:
    from tokenization_worker.tokenizers.checks.engine_check import engine_by_name
    from tokenization_worker.tokenizers.load import load_tokenizer

    start: Start = pipe.recv()
    try:
        tokenizer = load_tokenizer(start.tokenizer)
        limit_s = start.limit_s
        reference = tokenizer.reference if limit_s is None else tokenizer.limited_reference(limit_s)
        engines = {Role.ENGINE: engine_by_name(tokenizer, start.engine), Role.REFERENCE: reference}
    except Exception as error:  # noqa: BLE001  the worker's to raise
        pipe.send(portable(error))
        return
    _limit_memory(start.memory_bytes)
    pipe.send(None)
    while True:
        role, texts = pipe.recv()
        for text in texts:
            try:
                answer: Any = engines[role].encode([text]).ids
            except MemoryError:
                raise
            except BaseException as error:  # noqa: BLE001  as a worker of its own would: Rust's panics are no Exception
                answer = portable(error)
            pipe.send(answer)
            if isinstance(answer, BaseException):
                break


def _leave_with_worker(fd: int) -> None:
    """Leave as soon as nobody holds the other end, also in the middle of a text."""
    poll = select.poll()
    poll.register(fd, 0)  # hang-ups are always told
    poll.poll()
    os._exit(1)


def _limit_memory(more_bytes: int) -> None:
    """Let this process take `more_bytes` beyond what it has; the next allocation fails. Linux alone can count that."""
    if sys.platform != "linux":
        return
    import resource

    words = Path("/proc/self/status").read_text(encoding="ascii").split()
    limit = int(words[words.index("VmData:") + 1]) * 1024 + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
