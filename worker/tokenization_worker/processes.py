"""Worker processes on this machine: how many, how they start, and how they end with their parent.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_connections
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TypeVar

from tokenization_worker.api.workers import WORKER_BYTES as WORKER_BYTES  # others take it from here
from tokenization_worker.errors import TemporaryError, WorkerDied, portable
from tokenization_worker.host.main_guard import WorkerContext, require_importable_main

T = TypeVar("T")

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Come from people and systems, never from a document."""


def default_processes(cgroup: Path = Path("/sys/fs/cgroup"), task_bytes: int = WORKER_BYTES) -> int:
    """As many as cores and memory allow: the machine's, or the container's where it has less. `task_bytes`: memory of a
    task."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = _read_limits(cgroup / "cpu.max", 2)
    if quota is not None and period:
        cores = min(cores, max(1, quota // period))
    memory = [limit for limit in _read_limits(cgroup / "memory.max", 1) if limit is not None]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(1, min([cores, *(limit * 3 // 4 // task_bytes for limit in memory)]))


def free_memory(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that the machine, or the container where it has less, can still give; 0 where that is not known."""
    free = []
    machine = _read_numbers(meminfo)
    if "MemAvailable:" in machine:
        free.append(machine["MemAvailable:"] * 1024)
    limit, used = (*_read_limits(cgroup / "memory.max", 1), *_read_limits(cgroup / "memory.current", 1))
    if limit is not None and used is not None:
        cached = _read_numbers(cgroup / "memory.stat")
        free.append(limit - used + cached.get("active_file", 0) + cached.get("inactive_file", 0))
    return max(0, min(free, default=0))


def _read_numbers(path: Path) -> dict[str, int]:
    """The first number behind each name; of a file that is absent nothing."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}


def exit_words(code: int) -> str:
    """How a process ended, by its exit code as Python gives it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _read_limits(path: Path, count: int) -> list[int | None]:
    """The `count` numbers of a limit of a control group (v2); None for one that is absent, or "max"."""
    try:
        words = path.read_text(encoding="ascii").split()
    except OSError:
        words = []
    return [int(word) if word.isdecimal() else None for word in [*words, *[""] * count][:count]]


def start_method(*, may_fork: bool) -> BaseContext:
    """Fork where the caller allows it and it is safe, else spawn; raises `SpecError` where nothing can be spawned."""
    fork = may_fork and sys.platform == "linux" and threading.active_count() == 1
    if fork:
        return multiprocessing.get_context("fork")
    require_importable_main()
    return WorkerContext()


@contextmanager
def starting_processes(context: BaseContext) -> Iterator[None]:
    """For a block that starts processes of `context`: each holds back what stops it until it says how it takes that.

    A fork has its parent's handlers before that, and a Ctrl-C on a terminal goes to both. This process may hold them
    back, too, until the block ends; where it has threads, one of them may take a signal in its middle.
    """
    if context.get_start_method() == "spawn":
        resource_tracker.ensure_running()  # it would start in the block, and let signals pass
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_stops(*, ignored: tuple[signal.Signals, ...]) -> None:
    """In a new process: those `ignored` are its parent's to answer, the others end it."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def can_copy() -> bool:
    """Whether a copy of this process can be trusted: one of its threads may hold what the copy waits for."""
    return start_method(may_fork=True).get_start_method() == "fork"


class CopyDied(Exception):
    """What was computed in a copy of this process killed it; the message says how it died."""


def compute_in_copy(compute: Callable[[], T]) -> T:
    """`compute()`, computed in a forked copy of this process; raises `CopyDied`. Only where `can_copy()`.

    A copy takes 5 ms to make (2026-11-22, 2 cores). What `compute` raises is raised here; its result is pickled.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(compute, theirs))
    with ours:
        with theirs, starting_processes(context):
            process.start()
        try:
            result = ours.recv()
        except (EOFError, OSError) as error:
            process.join()
            raise CopyDied(exit_words(process.exitcode or 0)) from error
    process.join()
    if isinstance(result, MemoryError):
        raise CopyDied("out of memory")
    if isinstance(result, Exception):
        raise result
    answer: T = result
    return answer


def _send_result(compute: Callable[[], object], pipe: Connection) -> None:
    _take_stops(ignored=STOPS)
    try:
        pipe.send(compute())
    except Exception as error:  # noqa: BLE001  the original's to raise
        pipe.send(portable(error))


def begin_worker() -> None:
    """In a new worker: leave Ctrl-C and a terminal that is gone to the parent, and do not outlive it."""
    _take_stops(ignored=(signal.SIGINT, signal.SIGHUP))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        wait_connections([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def end_pool(pool: ProcessPoolExecutor, *, kill: bool) -> set[int | None]:
    """Wait for the pool's processes to end; `kill` does not let running tasks finish. Returns their exit codes."""
    processes = list((pool._processes or {}).values())
    for process in processes if kill else ():
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)
    return {process.exitcode for process in processes}


def worker_died() -> TemporaryError:
    """The error for a pool that lost a process."""
    return WorkerDied(
        "WorkerDied",
        "a worker process was killed (often: out of memory)",
        next_step="start the same command again, with fewer --processes if memory is short",
    )
