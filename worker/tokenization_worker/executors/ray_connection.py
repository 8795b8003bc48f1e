"""The Ray cluster: reaching it, or starting one on this machine, and how much it can do at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.processes import WORKER_BYTES

CONNECT_TIMEOUT_S = 10.0

_OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster of our own: receipts are small, and Ray would set aside a third of the memory."""


def connect(address: str | None, processes: int) -> None:
    """To `address` or that of `RAY_ADDRESS`, else to the cluster that this machine is part of, else to a new one here
    of so many CPUs ("local").

    Raises `SpecError` for what is no address, and `TemporaryError` where nothing answers.
    """
    with _signals_kept():
        _connect(address, processes)


def require_slots() -> None:
    """Raise `TemporaryError` unless the cluster can run something now."""
    nodes = list_nodes()
    if not any(map(slots_of, nodes)):
        there = ", ".join(f"{node['NodeManagerAddress']}: {node['Resources']}" for node in nodes) or "none"
        raise TemporaryError(
            "NoWorkers",
            f"no node of the Ray cluster has a CPU and {WORKER_BYTES >> 20} MiB of memory; it has {there}",
            next_step="start its worker nodes (`ray start --address=...`) and then the same command again",
        )


def list_nodes() -> list[dict[str, Any]]:
    """The nodes that are alive, as Ray describes them."""
    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    return [node for node in nodes() if node["Alive"]]


def head_answers() -> bool:
    """Whether the head of the cluster that this process is connected to is there; Ray itself would wait for it."""
    try:
        _open(ray.get_runtime_context().gcs_address).close()
    except (OSError, RuntimeError):
        return False
    return True


def slots_of(node: dict[str, Any]) -> int:
    """Tasks that a node can run at once: one a CPU, where memory allows it."""
    resources = node["Resources"]
    return min(int(resources.get("CPU", 0)), int(resources.get("memory", 0)) // WORKER_BYTES)


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
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = address or os.environ.get("RAY_ADDRESS") or _current_cluster()
    if address != "local":
        _require_listening(address)
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            raise _no_cluster(address, error) from error
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=processes,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        **quiet,
    )


def _current_cluster() -> str:
    """The cluster that `ray start` has made this machine part of, else "local".

    Ray's own "auto" would also take a cluster that another process has started for itself, and that ends with it.
    """
    try:
        address = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").read_text("utf-8").strip()
        _require_listening(address)
    except (OSError, SpecError, TemporaryError):  # none, or it was killed
        return "local"
    return address


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
        _open(address).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _open(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S)


def _no_cluster(address: str, error: Exception) -> TemporaryError:
    return TemporaryError(
        "NoCluster",
        f"cannot connect to the Ray cluster at {address}: {error}",
        next_step="check the address, and that the cluster runs there: ray status --address=...",
    )
