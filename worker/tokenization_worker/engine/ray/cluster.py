"""Reads the nodes and free slots of the Ray cluster. Does not wait for a head that does not answer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import ray
from ray import exceptions

from tokenization_worker.errors import TemporaryError
from tokenization_worker.processes import WORKER_BYTES
from tokenization_worker.storage.prefetch import start_call

T = TypeVar("T")

ANSWER_TIMEOUT_S = 5.0
"""How long the head of a cluster may take to answer. Ray itself would wait for minutes and ignore signals."""

_OUT_OF_REACH = (errno.EHOSTUNREACH, errno.EHOSTDOWN)

NODE_TIMEOUT_S = 2.0
"""How long a node may take to accept a connection after one of its workers was lost."""


def require_slots() -> None:
    """Raise `TemporaryError` unless the cluster can run something now."""
    nodes = list_nodes()
    if nodes is None:
        raise no_answer(ANSWER_TIMEOUT_S)
    if not any(map(slots_of, nodes)):
        there = ", ".join(f"{node['NodeManagerAddress']}: {node['Resources']}" for node in nodes) or "none"
        raise TemporaryError(
            "NoWorkers",
            f"no node of the Ray cluster has a CPU and {WORKER_BYTES >> 20} MiB of memory; it has {there}",
            next_step="start worker nodes (`ray start --address=...`), then start the same command again",
        )


def no_answer(seconds: float) -> TemporaryError:
    """The error for a cluster whose head did not answer in time."""
    return TemporaryError(
        "NoCluster",
        f"the head of the Ray cluster has not answered for {seconds:.0f} s",
        next_step="check the head node, then start the same command again; finished work is kept",
    )


def lost_own_node() -> TemporaryError:
    """The error for a driver whose machine is no part of the cluster any more: for it Ray would start nothing."""
    return TemporaryError(
        "NoCluster",
        "the Ray node of this machine, which connects the run to the cluster, has stopped",
        next_step="start the node again (ray start --address=...), then start the same command again; finished work is "
        "kept",
    )


def list_nodes() -> list[dict[str, Any]] | None:
    """The nodes that are alive, as Ray describes them; None where the cluster's head does not answer."""
    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    found = _answer(nodes)
    return None if found is None else [node for node in found if node["Alive"]]


def answers(node: dict[str, Any]) -> bool:
    """Whether something listens where a node's raylet does. The cluster itself believes for a quarter of a minute in a
    node that is gone."""
    address = (str(node["NodeManagerAddress"]), int(node["NodeManagerPort"]))
    try:
        socket.create_connection(address, timeout=NODE_TIMEOUT_S).close()
    except OSError as error:  # others are this machine's own, and say nothing of the node
        return not (isinstance(error, ConnectionRefusedError | TimeoutError) or error.errno in _OUT_OF_REACH)
    return True


def kill_actors(handles: Iterable[Any]) -> bool:
    """End processes, whatever they do. False where the head does not answer: then they end when it is seen to be gone,
    or when this process ends."""
    return _answer(lambda: [ray.kill(handle) for handle in handles]) is not None


def _answer(ask: Callable[[], T]) -> T | None:
    """What the head answers, if it does so in time."""
    asked = start_call(ask)
    try:
        return asked.result(ANSWER_TIMEOUT_S)
    except (TimeoutError, exceptions.RayError):
        return None


def slots_of(node: dict[str, Any]) -> int:
    """Tasks that a node can run at once: one a CPU, where memory allows it."""
    resources = node["Resources"]
    return min(int(resources.get("CPU", 0)), int(resources.get("memory", 0)) // WORKER_BYTES)
