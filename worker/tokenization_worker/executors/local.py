"""A pool of processes on this machine."""

from __future__ import annotations

import os
import socket
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from tokenization_worker.executors.base import Done, Receipt, Task, run_task
from tokenization_worker.processes import begin_worker, end_pool, start_method, worker_died


class LocalExecutor:
    """Runs tasks in `processes` processes; `fork=False` starts them from scratch."""

    def __init__(self, processes: int, *, fork: bool) -> None:
        self.slots = processes
        self._node = socket.gethostname()
        context = start_method(may_fork=fork)
        self._pool = ProcessPoolExecutor(processes, mp_context=context, initializer=begin_worker)
        self._running: dict[Future[Receipt], Task] = {}
        if context.get_start_method() == "fork":  # now, before anybody starts a thread
            wait([self._pool.submit(os.getpid)])  # if that worker dies, the first task's `submit` says so

    def submit(self, task: Task) -> None:
        try:
            self._running[self._pool.submit(run_task, task, self._node)] = task
        except BrokenProcessPool as error:
            raise worker_died() from error

    def wait(self, timeout_s: float) -> list[Done]:
        ended, _ = wait(self._running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        return self._collect(ended)

    def _collect(self, ended: set[Future[Receipt]]) -> list[Done]:
        done = []
        for future in ended:
            task = self._running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                error = worker_died()
            done.append(Done(task, future.result() if error is None else error))
        return done

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        done: list[Done] = []
        if self._running and grace_s > 0:
            ended, _ = wait(self._running, timeout=grace_s)
            done = self._collect(ended)
        end_pool(self._pool, kill=bool(self._running))
        self._running.clear()
        return done
