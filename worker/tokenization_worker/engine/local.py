"""Runs tasks in processes of this machine, one task at a time each: a process that dies loses only its task.

A pool of the standard library is broken as a whole by one death, does not say whose task it was, and runs threads. Here
the driver has none, so that a process can be forked safely at any time: also one in a dead one's place.
"""

from __future__ import annotations

import os
import select
import socket
import time
import traceback
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler

from tokenization_worker.engine.executor import UnderWay, take_idle
from tokenization_worker.engine.task import Done, Task, Worker, WorkerLost, WorkerState
from tokenization_worker.engine.task_progress import Advance, EverySecond, OnAdvance
from tokenization_worker.errors import portable
from tokenization_worker.events import Receipt
from tokenization_worker.host.main_guard import EXIT_CODE, guard_missing
from tokenization_worker.host.open_files import files_needed, require_open_files
from tokenization_worker.processes import begin_worker, exit_words, start_method, starting_processes


class LocalExecutor:
    """Runs tasks in `processes` processes; `fork=False` starts them from scratch.

    Ctrl-C may come up anywhere in here: at every moment all processes are in `_all`, and `close` ends those.
    """

    def __init__(self, processes: int, *, fork: bool) -> None:
        require_open_files(files_needed(processes, has_store=not fork))
        self.slots = processes
        self._may_fork = fork
        self._node = socket.gethostname()
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Task] = {}
        self._advances: dict[_Worker, Advance] = {}  # of the task that a busy worker has now
        try:  # now: for a fork, before anybody starts a thread; for a new interpreter, so that all start at once
            self._idle = [self._start() for _ in range(processes)]
        except BaseException:
            self.close()
            raise

    def _start(self) -> _Worker:
        context = start_method(may_fork=self._may_fork)
        with starting_processes(context):
            self._all.append(_Worker(context, self._node))
        return self._all[-1]

    def blocked_reason(self) -> str:
        return ""  # its processes are there, or `submit` starts them

    def under_way(self) -> UnderWay:
        advances = tuple((self._busy[worker], advance) for worker, advance in self._advances.items())
        return UnderWay(self.slots, self.slots, advances)

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        chosen = self._take_idle(worker)
        self._busy[chosen] = task
        chosen.give(task)

    def _take_idle(self, wanted: Worker | None) -> _Worker:
        """A process that waits for a task: `wanted` or another of those that are there, or a new one in the place of a
        dead one."""
        while self._idle:
            worker = take_idle(self._idle, wanted)
            if worker.is_alive:
                return worker
            worker.join()
            worker.require_main_guard()
            self._all.remove(worker)
        return self._start()

    def wait(self, timeout_s: float) -> list[Done]:
        ready = set(wait([worker.pipe for worker in self._busy], timeout_s))
        done: list[Done] = []
        for worker in [worker for worker in self._busy if worker.pipe in ready]:
            result = worker.take()
            if isinstance(result, Advance):
                self._advances[worker] = result
                continue
            done.append(Done(self._busy.pop(worker), result, worker))
            self._advances.pop(worker, None)
            self._idle.append(worker)
        return done

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        done: list[Done] = []
        deadline = time.monotonic() + grace_s
        while self._busy and (left := deadline - time.monotonic()) > 0:
            done.extend(self.wait(left))
        for worker in self._all:
            if worker in self._idle:
                worker.dismiss()
            else:
                worker.kill()
        for worker in self._all:
            worker.join()
        self._all, self._idle, self._busy, self._advances = [], [], {}, {}
        return done


class _Worker:
    """A process and the driver's end of the pipe to it, which ends when the process does: nobody else has the other."""

    def __init__(self, context: BaseContext, node: str) -> None:
        self.pipe, theirs = Pipe()
        # A daemon, so that one that nobody knows of, because of a Ctrl-C just here, is ended when this process ends.
        self._process = context.Process(target=_serve, args=(theirs, node), daemon=True)  # type: ignore[attr-defined]
        with theirs:
            self._process.start()

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def give(self, task: Task) -> None:
        with suppress(ConnectionError):  # it has just died: `take` will say so
            self.pipe.send(task)

    def take(self) -> Advance | Receipt | BaseException:
        """How far its task is, or what became of it."""
        with suppress(EOFError, OSError):
            result: Advance | Receipt | BaseException = self.pipe.recv()
            return result
        self._process.join()
        self.require_main_guard()
        return WorkerLost(f"process {self._process.pid}: {exit_words(self._process.exitcode)}", with_node=False)

    def require_main_guard(self) -> None:
        """Raise `SpecError` if it ended because it imported a script that calls `run_job`."""
        if self._process.exitcode == EXIT_CODE:
            raise guard_missing("run_job")

    def dismiss(self) -> None:
        """Let it end: there are no more tasks."""
        with suppress(ConnectionError):
            self.pipe.send(None)

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        """Wait for its end."""
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, node: str) -> None:
    """Run tasks until there are no more."""
    begin_worker()
    state = WorkerState(node)
    with suppress(EOFError, ConnectionError):  # the driver is gone
        while (task := pipe.recv()) is not None:
            pipe.send_bytes(_run(task, state, EverySecond(partial(_send_advance, pipe))))


def _send_advance(pipe: Connection, advance: Advance) -> None:
    """Report the task's progress to the driver, unless hundreds of reports are unread: a worker never waits."""
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLOUT)
    if poll.poll(0):
        with suppress(ConnectionError):  # the driver is gone, which another thread answers
            pipe.send(advance)


def _run(task: Task, worker: WorkerState, on_advance: OnAdvance) -> memoryview:
    """What became of the task, pickled: its receipt, or what it raised."""
    try:
        result: Receipt | BaseException = task.run(worker, on_advance)
    except BaseException as error:  # noqa: BLE001  the driver's to raise
        error.add_note(f"in process {os.getpid()}:\n{traceback.format_exc()}")
        result = portable(error)
    return ForkingPickler.dumps(result)
