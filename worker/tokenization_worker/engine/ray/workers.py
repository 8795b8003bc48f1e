"""Workers on the nodes of a Ray cluster: requested where there is room, moved to other nodes, and withdrawn."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenization_worker.engine.ray.cluster import answers, kill_actors, list_nodes, lost_own_node, no_answer, slots_of
from tokenization_worker.engine.ray.task_progress import ADVANCES
from tokenization_worker.engine.ray.worker import RayWorker, TaskWorker
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import TemporaryError
from tokenization_worker.processes import WORKER_BYTES

_MAX_FAILED_STARTS = 20
"""Workers that could not start, on nodes that are there, before none ever will: if there has been none."""

_REST_S = 30.0
"""How long to avoid a node where a worker failed to start while workers start elsewhere; longer each time."""

_GONE_S = 60.0
"""How long a node that did not answer counts as gone. Ray needs 15 s to notice it."""

CHECK_INTERVAL_S = 2.0
"""Seconds between two requests for the size of the cluster: a new node waits for half of it on average."""

HEAD_GONE_S = 45.0
"""How long a head may be away. It may come back, but after 60 s Ray ends this process without a message."""

PATIENCE_S = 60.0
"""After this time without a worker, the run says what it waits for."""

MOVE_AFTER_S = 30.0
"""A worker that has not started by then is asked for on another node, if not every slot was asked for anyway."""


class RayWorkers:
    """A `TaskWorker` for every slot of the cluster, as it grows and shrinks; at most `limit`.

    A worker that finds no room, because other programs use the node, does not become idle before it does. `events`:
    what came of each call of a worker; the first says that it has started.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {ADVANCES: 1}}
        self._make = ray.remote(num_cpus=1, memory=WORKER_BYTES, **options)(TaskWorker)
        self._all: set[RayWorker] = set()
        self._ready: set[RayWorker] = set()  # those of them that have started
        self._failed: Counter[str] = Counter()  # by node: workers that could not start since the last one that could
        self._has_had_one = False
        self._last_error = ""  # of a worker that could not start, since the last one that could
        self._own_node: str = ray.get_runtime_context().get_node_id()
        self._gone_until: dict[str, float] = {}  # nodes that do not answer: by then Ray has seen it, too
        self._rests_until: dict[str, float] = {}
        self._moved: Counter[str] = Counter()  # by node: workers that have found no room
        self._move_after_s = MOVE_AFTER_S
        self._checked_at = 0.0
        self._answered_at = self._had_ready_at = time.monotonic()
        self.idle: list[RayWorker] = []
        self.events: SimpleQueue[tuple[RayWorker, Future[Any]]] = SimpleQueue()
        self.fill()

    def fill(self) -> None:
        """As `_fill`, with the nodes that there are now."""
        self._fill(list_nodes())

    def _fill(self, found: list[dict[str, Any]] | None) -> None:
        """Ask for the workers that the cluster has room for and that are not there yet.

        Where the head does not answer, nothing can be asked for. Raises `TemporaryError` after `HEAD_GONE_S` of that,
        and where this machine's own node is gone.
        """
        self._checked_at = time.monotonic()
        if found is None:
            away_s = self._checked_at - self._answered_at
            if away_s > HEAD_GONE_S:
                raise no_answer(away_s)
            return
        self._answered_at = self._checked_at
        nodes = {node["NodeID"]: slots_of(node) for node in found}
        if self._own_node not in nodes:
            raise lost_own_node()
        for worker in [worker for worker in self._all if worker.node_id not in nodes]:
            self._forget(worker)  # an idle one says nothing when it ends
        if self._limit is not None and self._limit < sum(nodes.values()):
            self._give_up_waiting()
        free = Counter({name: slots for name, slots in nodes.items() if not self._is_gone(name)})
        free.subtract(worker.node_id for worker in self._all)
        while self._limit is None or len(self._all) < self._limit:
            node_id = max(
                (name for name in nodes if free[name] > 0 and self._rests_until.get(name, 0.0) <= self._checked_at),
                key=lambda name: (-self._moved[name], free[name]),
                default=None,
            )
            if node_id is None:
                break
            free[node_id] -= 1
            self._ask_for(node_id)

    def _ask_for(self, node_id: str) -> None:
        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        handle: Any = self._make.options(scheduling_strategy=place).remote()
        worker = RayWorker(handle, node_id, time.monotonic())
        self._all.add(worker)
        self._watch(worker, handle.is_ready.remote())

    def _give_up_waiting(self) -> None:
        """Withdraw workers that have not started for long: other programs use the node, and other nodes may have room.

        Patience doubles, because they may only be slow to start.
        """
        too_old = time.monotonic() - self._move_after_s
        old = [worker for worker in self._all - self._ready if worker.asked_at < too_old]
        if old:
            self._move_after_s *= 2
        self._moved.update(worker.node_id for worker in old)
        self.kill(*old)

    def _watch(self, worker: RayWorker, reference: Any) -> None:
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda future: self.events.put((worker, future)))

    def run(self, worker: RayWorker, task: Task) -> None:
        """Have a worker do a task; what comes of it will be among the `events`."""
        self._watch(worker, worker.handle.run.remote(task))

    def take_start(self, worker: RayWorker, future: Future[Any]) -> None:
        """Note that a worker has started, or that it could not: then its place is filled at the next look."""
        error = future.exception()
        if worker not in self._all:
            return
        if error is None:
            self._ready.add(worker)
            self.idle.append(worker)
            self._has_had_one = True
            self._failed.pop(worker.node_id, None)
            self._last_error = ""
            return
        self.kill(worker)
        if not self._is_there(worker.node_id, list_nodes()):
            return  # it went with its node
        self._failed[worker.node_id] += 1
        self._last_error = f"; the last worker failed to start: {error}"
        if self._has_had_one:
            self._rests_until[worker.node_id] = time.monotonic() + _REST_S * self._failed[worker.node_id]
        elif self._failed.total() >= _MAX_FAILED_STARTS:
            raise TemporaryError(
                "NoWorkers",
                f"workers cannot start on the nodes of the Ray cluster: {error}",
                next_step="install the same version of this package and of Python on every node, then start the same "
                "command again",
            )

    def take_loss(self, worker: RayWorker) -> bool:
        """Forget a worker that is gone, and ask for one in its place; whether its node is gone as well."""
        self.kill(worker)  # it may be alive and only out of reach: its CPU would be lost
        found = list_nodes()
        is_there = self._is_there(worker.node_id, found)
        self._fill(found)
        return not is_there

    def _is_there(self, node_id: str, found: list[dict[str, Any]] | None) -> bool:
        """Whether a node that has lost a worker is there itself. Of one that is not, idle workers get no task."""
        node = next((node for node in found or () if node["NodeID"] == node_id), None)
        if node is None or self._is_gone(node_id):
            return False
        if answers(node):
            return True
        self._gone_until[node_id] = time.monotonic() + _GONE_S
        self.kill(*[worker for worker in self.idle if worker.node_id == node_id])
        return False

    def _is_gone(self, node_id: str) -> bool:
        return time.monotonic() < self._gone_until.get(node_id, 0.0)

    def count_ready(self) -> int:
        """Workers that have started; the cluster is looked at again from time to time. Raises as `fill`."""
        if time.monotonic() - self._checked_at > CHECK_INTERVAL_S:
            self.fill()
        if self._ready:
            self._had_ready_at = time.monotonic()
        return len(self._ready)

    def counts(self) -> tuple[int, int]:
        """Workers that have started, and those that have or are asked for; without looking at the cluster."""
        return len(self._ready), len(self._all)

    def blocked_reason(self) -> str:
        """What is waited for, where there has been no worker for `PATIENCE_S`; else nothing."""
        waited_s = time.monotonic() - self._had_ready_at
        if waited_s < PATIENCE_S:
            return ""
        if not self._all:
            needed = f"a node that accepts a worker and has a CPU and {WORKER_BYTES >> 20} MiB of memory for it"
            return (
                f"no worker of the Ray cluster has started for {waited_s:.0f} s; waiting for {needed}{self._last_error}"
            )
        asked = f"{len(self._all)} are asked for on {len({worker.node_id for worker in self._all})} nodes"
        return (
            f"no worker of the Ray cluster has started for {waited_s:.0f} s ({asked}); other programs may hold the "
            "CPUs or the memory there: see `ray status`"
        )

    def kill(self, *workers: RayWorker) -> bool:
        """End workers, whatever they do; whether the head answers."""
        for worker in workers:
            self._forget(worker)
        return not workers or kill_actors([worker.handle for worker in workers])

    def take_back(self, worker: RayWorker) -> None:
        """A task has ended: its worker is idle, unless its node is gone meanwhile."""
        if worker in self._all:
            self.idle.append(worker)

    def _forget(self, worker: RayWorker) -> None:
        self._all.discard(worker)
        self._ready.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)

    def close(self) -> bool:
        """End all workers. False where the head does not answer: then Ray can be told nothing more."""
        return list_nodes() is not None and self.kill(*self._all)
