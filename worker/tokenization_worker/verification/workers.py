"""Runs the checks of many shards or files, here or in processes of their own.

Processes are forked where that is safe (Linux, one thread, nothing but local files), so that they share a
loaded tokenizer; elsewhere they are spawned. They end with their parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_connections
from typing import TypeVar

from tokenization_worker.errors import TemporaryError
from tokenization_worker.verification.facts import Facts

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4
"""Tasks that wait for every process, so that none of them waits for a task."""

_facts: Facts


def default_processes() -> int:
    """As many as cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    check: Callable[[Facts, T], R], facts: Facts, tasks: Sequence[T], *, processes: int, may_fork: bool
) -> Iterator[tuple[int, R]]:
    """`check(facts, task)` of every task, with the task's number, as they are done."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        for number, task in enumerate(tasks):
            yield number, check(facts, task)
        return
    fork = may_fork and sys.platform == "linux" and threading.active_count() == 1
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("fork" if fork else "spawn"),
        initializer=_start,
        initargs=(facts,),
    )
    running: dict[Future[R], int] = {}
    todo = iter(enumerate(tasks))
    try:
        while True:
            while len(running) < processes * _AHEAD and (item := next(todo, None)) is not None:
                running[pool.submit(_run, check, item[1])] = item[0]
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise TemporaryError(
            "WorkerDied",
            "a process was killed (often: out of memory)",
            next_step="start the same command again, with fewer processes if memory is short",
        ) from error
    finally:
        for process in list((pool._processes or {}).values()) if running else ():
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _start(facts: Facts) -> None:
    """Keep the facts, leave Ctrl-C to the parent, and do not outlive it."""
    global _facts
    _facts = facts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        wait_connections([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _run(check: Callable[[Facts, T], R], task: T) -> R:
    return check(_facts, task)
