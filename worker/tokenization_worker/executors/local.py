"""A pool of processes on this machine.

On Linux, with everything on local disks, workers are forked from a driver that has loaded the tokenizer
already: they start in milliseconds and share its memory. Elsewhere (another platform, a process with
threads, cloud clients whose connections must not be shared) they are spawned and load it themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_connections

from tokenization_worker.build import build_shard
from tokenization_worker.context import TokenizeTask
from tokenization_worker.errors import TemporaryError
from tokenization_worker.executors.base import Done, Receipt, Task
from tokenization_worker.tokenize import tokenize_range

WORKER_BYTES = 700 << 20
"""Memory set aside for a worker process: the measured peak is below 600 MB."""


def default_processes() -> int:
    """As many as cores and memory allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return cores
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores, available * 3 // 4 // WORKER_BYTES))


class LocalExecutor:
    """Runs tasks in `processes` processes; `fork=False` starts them from scratch."""

    def __init__(self, processes: int, *, fork: bool) -> None:
        self.slots = processes
        self.range_slots: int | None = processes
        may_fork = fork and sys.platform == "linux" and threading.active_count() == 1
        self._pool = ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("fork" if may_fork else "spawn"),
            initializer=_start_worker,
        )
        self._running: dict[Future[Receipt], Task] = {}
        if may_fork:  # now, before anybody starts a thread
            self._pool.submit(os.getpid).result()

    def submit(self, task: Task) -> None:
        try:
            self._running[self._pool.submit(_run, task)] = task
        except BrokenProcessPool as error:
            raise _worker_died() from error

    def wait(self, timeout_s: float) -> list[Done]:
        ended, _ = wait(self._running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        return self._collect(ended)

    def _collect(self, ended: set[Future[Receipt]]) -> list[Done]:
        done = []
        for future in ended:
            task = self._running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                error = _worker_died()
            done.append(Done(task, future.result() if error is None else error))
        return done

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        done: list[Done] = []
        if self._running and grace_s > 0:
            ended, _ = wait(self._running, timeout=grace_s)
            done = self._collect(ended)
        processes = list((self._pool._processes or {}).values())
        if self._running:
            for process in processes:
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._running.clear()
        return done


def _worker_died() -> TemporaryError:
    return TemporaryError(
        "WorkerDied",
        "a worker process was killed (often: out of memory)",
        next_step="start the same command again, with fewer --processes if memory is short",
    )


def _start_worker() -> None:
    """Leave Ctrl-C to the driver, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        wait_connections([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _run(task: Task) -> Receipt:
    """One task, in a worker process."""
    return tokenize_range(task) if isinstance(task, TokenizeTask) else build_shard(task)
