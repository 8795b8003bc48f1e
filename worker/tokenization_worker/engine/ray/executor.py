"""Runs tasks on a Ray cluster: an existing one, or a new one on this machine.

Whether a task runs again after its worker or node was lost is decided by `schedule`, as everywhere: Ray itself retries
nothing. Token bytes go from workers to the store; through Ray go tasks and receipts.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from queue import Empty
from types import TracebackType
from typing import Any, Self

import ray
from ray import exceptions

from tokenization_worker.engine.executor import UnderWay, take_idle
from tokenization_worker.engine.ray.cluster import list_nodes, require_slots, slots_of
from tokenization_worker.engine.ray.connection import connect, disconnect
from tokenization_worker.engine.ray.task_progress import RayAdvances
from tokenization_worker.engine.ray.worker import RayWorker
from tokenization_worker.engine.ray.workers import RayWorkers
from tokenization_worker.engine.task import Done, Task, Worker, WorkerLost
from tokenization_worker.events import StartingRay, Watcher, ignore
from tokenization_worker.processes import default_processes


class RayCluster:
    """A cluster to run on, connected to when it is first needed.

    `address`: of the cluster; None takes the one that this machine is part of (or that `RAY_ADDRESS` names), else
    starts one here. `processes`: the most tasks at once; a cluster of our own has so many CPUs. In a process that is
    connected already, that connection is used, and left as it is. Its workers start when it is connected to, and
    serve one run after the other. `on_progress` is told when that begins.
    """

    def __init__(self, address: str | None = None, processes: int | None = None, on_progress: Watcher = ignore) -> None:
        self._address = address
        self._watch = on_progress
        self._processes = processes
        self._workers: RayWorkers | None = None
        self._is_ours = False

    def count_slots(self) -> int:
        """Tasks that the cluster can run at once now: one a CPU, where memory allows it."""
        self._connect()
        slots = sum(map(slots_of, list_nodes() or ()))
        return max(1, min(slots, self._processes or slots))  # 1: none now, but a run waits for them

    def start(self, *_of_the_run: object) -> RayExecutor:
        """What `run_job` takes as `executor`; what it is told of the run, tasks carry themselves."""
        return RayExecutor(self._connect())

    def _connect(self) -> RayWorkers:
        if self._workers is not None:
            return self._workers
        if not ray.is_initialized():
            self._is_ours = True
            self._watch(StartingRay(self._address))
            connect(self._address, self._processes or default_processes())
        require_slots()
        self._workers = RayWorkers(self._processes)
        return self._workers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave the cluster; one of our own ends."""
        if self._workers is not None:
            has_head = self._workers.close()
        else:
            has_head = not ray.is_initialized() or list_nodes() is not None
        if self._is_ours:
            disconnect(has_head=has_head)
        self._workers, self._is_ours = None, False


class RayExecutor:
    """Runs tasks where workers are idle."""

    def __init__(self, workers: RayWorkers) -> None:
        self._workers = workers
        self._waiting: deque[tuple[Task, Worker | None]] = deque()
        self._running: dict[RayWorker, Task] = {}
        self._advances = RayAdvances()

    @property
    def slots(self) -> int:
        return max(1, self._workers.count_ready())  # 1: a task waits until there are workers, at first or again

    def blocked_reason(self) -> str:
        return self._workers.blocked_reason()

    def under_way(self) -> UnderWay:
        return UnderWay(*self._workers.counts(), tuple(self._advances.of(self._running)))

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        self._waiting.append((task, worker))
        self._hand_out()

    def _hand_out(self) -> None:
        idle = self._workers.idle
        while self._waiting and idle:
            task, wanted = self._waiting.popleft()
            worker = take_idle(idle, wanted)
            self._running[worker] = task
            self._workers.run(worker, task)

    def wait(self, timeout_s: float) -> list[Done]:
        self._advances.ask(self._running)
        done: list[Done] = []
        try:
            event = self._workers.events.get(timeout=timeout_s)
            while True:
                self._take(*event, done)
                event = self._workers.events.get_nowait()
        except Empty:
            self._hand_out()
            return done

    def _take(self, worker: RayWorker, future: Future[Any], done: list[Done]) -> None:
        if worker not in self._running:
            self._workers.take_start(worker, future)
            return
        task = self._running.pop(worker)
        error = future.exception()
        if error is None or isinstance(error, exceptions.RayTaskError):
            self._workers.take_back(worker)
            done.append(Done(task, future.result() if error is None else error.cause, worker))
        elif isinstance(error, exceptions.RayError):
            with_node = self._workers.take_loss(worker)
            done.append(Done(task, WorkerLost(_words_of(error), with_node=with_node), worker))
        else:
            self._workers.kill(worker)
            done.append(Done(task, error))

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        done: list[Done] = []
        deadline = time.monotonic() + grace_s
        self._waiting.clear()
        while self._running and (left := deadline - time.monotonic()) > 0:
            done.extend(self.wait(left))
        self._workers.kill(*self._running)
        self._running.clear()
        return done


def _words_of(error: BaseException) -> str:
    """Ray's sentences, without its tables of ids between them."""
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t"))
