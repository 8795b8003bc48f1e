"""Worker processes on this machine: how many, how they start, and that they end with their parent.

On Linux, in a process without threads and with nothing but local files, workers are forked from a parent that
has loaded the tokenizer already: they start in milliseconds and share its memory. Elsewhere (another platform,
a process with threads, cloud clients whose connections must not be shared) they are spawned and load it
themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait as wait_connections
from multiprocessing.context import BaseContext
from pathlib import Path

from tokenization_worker.errors import TemporaryError

WORKER_BYTES = 700 << 20
"""Memory set aside for a worker process: the measured peak is below 600 MB."""


def default_processes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """As many as cores and memory allow: the machine's, or the container's where it has less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = _read_limits(cgroup / "cpu.max", 2)
    if quota is not None and period:
        cores = min(cores, max(1, quota // period))
    memory = [limit for limit in _read_limits(cgroup / "memory.max", 1) if limit is not None]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(1, min([cores, *(limit * 3 // 4 // WORKER_BYTES for limit in memory)]))


def _read_limits(path: Path, count: int) -> list[int | None]:
    """The `count` numbers of a limit of a control group (v2); None for one that is absent, or "max"."""
    try:
        words = path.read_text(encoding="ascii").split()
    except OSError:
        words = []
    return [int(word) if word.isdecimal() else None for word in [*words, *[""] * count][:count]]


def start_method(*, may_fork: bool) -> BaseContext:
    """Fork where the caller allows it and it is safe, else spawn."""
    fork = may_fork and sys.platform == "linux" and threading.active_count() == 1
    return multiprocessing.get_context("fork" if fork else "spawn")


def begin_worker() -> None:
    """In a new worker: leave Ctrl-C and a terminal that is gone to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        wait_connections([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def end_pool(pool: ProcessPoolExecutor, *, kill: bool) -> None:
    """Wait for the pool's processes to end; `kill` does not let running tasks finish."""
    for process in list((pool._processes or {}).values()) if kill else ():
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def worker_died() -> TemporaryError:
    """The error for a pool that lost a process."""
    return TemporaryError(
        "WorkerDied",
        "a worker process was killed (often: out of memory)",
        next_step="start the same command again, with fewer --processes if memory is short",
    )
