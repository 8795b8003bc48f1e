"""A Ray cluster: the one that is there, or one of its own on this machine.

Ray places tasks and keeps worker processes, which hold their engine from task to task. Whether a task runs again
after its worker or node was lost is decided by `schedule`, as everywhere: Ray itself retries nothing. Token bytes
go from workers to the store; through Ray go tasks and receipts.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

import ray
from ray import exceptions

from tokenization_worker.context import RunContext
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.executors.base import Done, Receipt, Task, WorkerLost, run_task
from tokenization_worker.planning import Prepared
from tokenization_worker.processes import WORKER_BYTES, default_processes
from tokenization_worker.storage.open import open_store

COUNT_INTERVAL_S = 5.0
"""How often the cluster is asked how large it is; nodes come and go within minutes."""

CONNECT_TIMEOUT_S = 10.0

_OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster of our own: receipts are small, and Ray would set aside a third of the memory."""

_WITH_NODE = (exceptions.NodeDiedError, exceptions.LocalRayletDiedError, exceptions.ObjectLostError)


class RayCluster:
    """A cluster to run on, connected to when it is first needed.

    `address`: of the cluster; None takes the one that this machine is part of (or that `RAY_ADDRESS` names), else
    starts one here. `processes`: the most tasks at once; a cluster of our own has so many CPUs. In a process that is
    connected already, that connection is used, and left as it is.
    """

    def __init__(self, address: str | None = None, processes: int | None = None) -> None:
        self._address = address
        self._processes = processes
        self._is_connected = False
        self._is_ours = False

    def count_slots(self) -> int:
        """Tasks that the cluster can run at once now: one a CPU, where memory allows it."""
        self._connect()
        slots = 0
        for node in _nodes():
            memory = int(node["Resources"].get("memory", 0))
            slots += min(int(node["Resources"].get("CPU", 0)), memory // WORKER_BYTES)
        return min(slots, self._processes or slots)

    def start(self, prepared: Prepared, context: RunContext) -> RayExecutor:
        """What `run_job` takes as `executor`."""
        del prepared, context  # tasks carry them
        return RayExecutor(self)

    def _connect(self) -> None:
        if self._is_connected:
            return
        self._is_connected = True
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            with _signals_kept():
                _connect(self._address, self._processes or default_processes())
        if not self.count_slots():
            nodes = ", ".join(f"{node['NodeManagerAddress']}: {node['Resources']}" for node in _nodes()) or "none"
            raise TemporaryError(
                "NoWorkers",
                f"no node of the Ray cluster has a CPU and {WORKER_BYTES >> 20} MiB of memory; it has {nodes}",
                next_step="start its worker nodes (`ray start --address=...`) and then the same command again",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave the cluster; one of our own ends."""
        if self._is_ours:
            ray.shutdown()
        self._is_connected = self._is_ours = False


class RayExecutor:
    """Runs tasks on a cluster, as many at once as it has room for."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._slots = cluster.count_slots()
        self._counted = time.monotonic()
        self._run = ray.remote(num_cpus=1, memory=WORKER_BYTES, max_retries=0, scheduling_strategy="SPREAD")(_run)
        self._running: dict[Future[Receipt], tuple[Task, Any]] = {}
        self._ended: SimpleQueue[Future[Receipt]] = SimpleQueue()

    @property
    def slots(self) -> int:
        now = time.monotonic()
        if now - self._counted > COUNT_INTERVAL_S:
            self._slots = max(1, self._cluster.count_slots())  # 1: so that a lost cluster is waited for
            self._counted = now
        return self._slots

    def submit(self, task: Task) -> None:
        reference = self._run.remote(task)
        future = reference.future()
        self._running[future] = (task, reference)
        future.add_done_callback(self._ended.put)

    def wait(self, timeout_s: float) -> list[Done]:
        done: list[Done] = []
        try:
            done.append(self._take(self._ended.get(timeout=timeout_s)))
            while True:
                done.append(self._take(self._ended.get_nowait()))
        except Empty:
            return done

    def _take(self, future: Future[Receipt]) -> Done:
        task, _ = self._running.pop(future)
        error = future.exception()
        return Done(task, future.result() if error is None else _meaning(error))

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        done: list[Done] = []
        deadline = time.monotonic() + grace_s
        while self._running and (left := deadline - time.monotonic()) > 0:
            done.extend(self.wait(left))
        for _, reference in self._running.values():
            ray.cancel(reference, force=True)
        self._running.clear()
        return done


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it connects, and would end the process without a word to the run."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _connect(address: str | None, processes: int) -> None:
    """To `address`, else to the cluster that this machine is part of, else to a new one here."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address not in ("auto", "local"):
        _require_listening(address)
    try:
        if address != "local":
            ray.init(address=address, **quiet)
            return
    except ConnectionError as error:
        if address != "auto":
            raise _no_cluster(address, error) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=processes,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        **quiet,
    )


def _require_listening(address: str) -> None:
    """Ray itself would wait for minutes, without a word, for an address where nothing is."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise SpecError(
            "SpecInvalid",
            f"the Ray address {address!r} is not HOST:PORT",
            next_step="write the address that `ray start --head` printed, such as 10.0.0.5:6379",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> TemporaryError:
    return TemporaryError(
        "NoCluster",
        f"cannot connect to the Ray cluster at {address}: {error}",
        next_step="check the address, and that the cluster runs there: ray status --address=...",
    )


def _nodes() -> list[dict[str, Any]]:
    list_nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    return [node for node in list_nodes() if node["Alive"]]


def _run(task: Task) -> Receipt:
    """One task, in a worker of the cluster, which may then be idle until the cluster ends."""
    node = f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()}"
    try:
        return run_task(task, node)
    finally:
        open_store(task.context.data.output.uri).close_own_scratch()


def _meaning(error: BaseException) -> BaseException:
    """What Ray's error says of the task: its own exception, or that its worker is gone."""
    if isinstance(error, exceptions.RayTaskError):
        cause: BaseException = error.cause
        return cause
    if isinstance(error, exceptions.RayError):
        return WorkerLost(str(error).strip(), with_node=isinstance(error, _WITH_NODE))
    return error
