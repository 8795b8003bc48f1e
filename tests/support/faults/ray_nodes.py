"""A Ray cluster of several nodes on this machine: real raylets, each with processes of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

CPUS = 2
_NODE = {"num_cpus": CPUS, "object_store_memory": 80 << 20}
_HEAD = _NODE | {
    # What costs a second of a core each, and no run needs.
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
    "_system_config": {"enable_worker_prestart": False, "prestart_worker_first_driver": False},
}
_RAYLET = "raylet"


class Nodes:
    """Nodes of two CPUs each; the first is the head, which may have none."""

    def __init__(self, count: int, head_cpus: int = CPUS) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args=_HEAD | {"num_cpus": head_cpus})
        self._nodes = [self._cluster.head_node]
        for _ in range(count - 1):
            self.add()
        self.address: str = self._cluster.address

    def add(self) -> str:
        """One more node; its id."""
        node = self._cluster.add_node(**_NODE)
        self._nodes.append(node)
        node_id: str = node.node_id
        return node_id

    @property
    def ids(self) -> list[str]:
        return [node.node_id for node in self._nodes]

    def kill_raylet(self, number: int) -> None:
        """SIGKILL a node's raylet; its workers see that and end."""
        node = self._nodes.pop(number)
        process = node.all_processes[_RAYLET][0].process
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_head(self) -> None:
        """SIGKILL what makes the first node the head."""
        process = self._head()
        process.send_signal(signal.SIGKILL)
        process.wait()

    @contextmanager
    def hung_head(self) -> Iterator[None]:
        """The head takes connections and answers nothing."""
        self._head().send_signal(signal.SIGSTOP)
        _wait_until_stopped(self._head().pid)
        try:
            yield
        finally:
            self._head().send_signal(signal.SIGCONT)

    def _head(self) -> Any:
        return self._cluster.head_node.all_processes["gcs_server"][0].process

    def busy_workers(self, number: int) -> list[int]:
        """Process ids of a node's workers that run a task now, on an output of this machine: they write a file there.

        Their title says less: a question how far it is, asked meanwhile, changes it.
        """
        return [pid for pid in self.workers(number) if _writes_scratch(pid)]

    def workers(self, number: int) -> list[int]:
        """Process ids of a node's workers."""
        raylet = self._nodes[number].all_processes[_RAYLET][0].process.pid
        children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text(encoding="ascii").split()
        return [int(pid) for pid in children if _title(pid).startswith("ray::TaskWorker")]

    def close(self) -> None:
        self._cluster.shutdown()


def _wait_until_stopped(pid: int) -> None:
    """Every thread stops when it is next about to run, so one on another core may go on for a while."""
    states: set[str] = set()
    while states != {"T"}:
        time.sleep(0.005)
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended meanwhile
            threads = Path(f"/proc/{pid}/task").glob("*/stat")
            states = {thread.read_text(encoding="ascii").rpartition(") ")[2][0] for thread in threads}


def _title(pid: str) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""


def _writes_scratch(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if "/_tokenization/tmp/" in str(entry.readlink()):
                    return True
    return False


@contextmanager
def ray_nodes(count: int, head_cpus: int = CPUS) -> Iterator[Nodes]:
    """A cluster that ends with the block."""
    nodes = Nodes(count, head_cpus)
    try:
        yield nodes
    finally:
        nodes.close()
