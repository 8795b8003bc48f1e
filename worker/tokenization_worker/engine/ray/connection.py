"""The Ray cluster: reaching it, or starting one on this machine, and how much it can do at once."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import ray
from ray import exceptions
from ray._private.grpc_utils import init_grpc_channel

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.redact import redact_address
from tokenization_worker.processes import WORKER_BYTES
from tokenization_worker.stop import current_stop, left_when_stopped
from tokenization_worker.storage.prefetch import start_call

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0

_HERE, _OWN = "auto", "local"
"""Ray's words for the cluster that this machine is part of, and for a new one."""

ANSWER_TIMEOUT_S = 5.0
"""So long the head of a cluster may take to answer; Ray itself would wait for minutes, deaf to signals."""

_OUT_OF_REACH = (errno.EHOSTUNREACH, errno.EHOSTDOWN)

_TELL_AFTER_S = 1.0
"""A stop that takes longer needs a word."""

_LOG = logging.getLogger(__name__)

NODE_TIMEOUT_S = 2.0
"""So long a node may take to accept a connection, when one of its workers was lost."""

_OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster of our own: receipts are small, and Ray would set aside a third of the memory."""


def connect(address: str | None, processes: int) -> None:
    """To `address` or that of `RAY_ADDRESS`, else to the cluster that this machine is part of, else to a new one here
    of so many CPUs ("local").

    Raises `SpecError` for what is no address, and `TemporaryError` where nothing answers.
    """
    with _signals_kept(), telling_of_stops(), left_when_stopped():
        _connect(address, processes)


def require_reachable(address: str) -> None:
    """Raise as `connect` does for what is no address, or where no cluster answers, without joining it."""
    if address not in (_HERE, _OWN):
        _require_listening(address)
        _refuses(address)


def disconnect(*, has_head: bool) -> None:
    """Leave the cluster; one of our own ends. Without its head Ray would wait for that for ever, also at exit."""
    if has_head:
        ray.shutdown()
    elif (stop := current_stop()) is not None:
        stop.never_ends()


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
            next_step="start its worker nodes (`ray start --address=...`) and then the same command again",
        )


def no_answer(seconds: float) -> TemporaryError:
    """The error for a cluster whose head has been silent for so long."""
    return TemporaryError(
        "NoCluster",
        f"the head of the Ray cluster has not answered for {seconds:.0f} s",
        next_step="look at the head node, then start the same command again; what is done is kept",
    )


def lost_own_node() -> TemporaryError:
    """The error for a driver whose machine is no part of the cluster any more: for it Ray would start nothing."""
    return TemporaryError(
        "NoCluster",
        "the Ray node of this machine, by which the run is part of the cluster, is gone",
        next_step="make the machine a node again (ray start --address=...), then start the same command again; what is "
        "done is kept",
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


@contextmanager
def telling_of_stops() -> Iterator[None]:
    """Say within a second what a stop waits for, and end at once at a second one.

    Ray spends seconds of its start in calls that no handler of Python interrupts. A signal's number gets
    into a pipe all the same, which a thread reads. What Ray has started by then, its reaper ends with this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch_stops, args=(reader, is_over), name="stops", daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _watch_stops(reader: int, is_over: threading.Event) -> None:
    stops = 0
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number in (signal.SIGINT, signal.SIGTERM) and not is_over.is_set():
                stops += 1
                if stops > 1:
                    os._exit(128 + number)
                if not is_over.wait(_TELL_AFTER_S):
                    _LOG.warning("Ray is starting; the run stops when Ray answers. Press Ctrl-C again to stop now")


def _connect(address: str | None, processes: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = address or os.environ.get("RAY_ADDRESS") or _HERE
    if address == _HERE:
        address = _current_cluster()
    if address != _OWN:
        _require_listening(address)
        _use_token(address)
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            raise _no_cluster(address, error) from error
        except (RuntimeError, ValueError) as error:
            raise SpecError(
                "ClusterMismatch",
                f"cannot join the Ray cluster at {address}: {error}",
                next_step="run this on a node of the cluster (ray start --address=...), with the same versions of Ray "
                "and Python as there",
            ) from error
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=processes,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        **quiet,
    )


def _use_token(address: str) -> None:
    """Show the cluster the token of this machine, if it asks for one. Ray (2.60) does so by itself where it starts a
    cluster, and not where it joins one.
    """
    if not _refuses(address):
        return
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    setup = logging.getLogger(maybe_enable_token_auth_if_token_available.__module__)
    level = setup.level
    setup.setLevel(logging.ERROR)  # what it says is about a cluster that is started
    try:
        has_token = maybe_enable_token_auth_if_token_available()
    finally:
        setup.setLevel(level)
    if not has_token:
        raise _no_cluster(address, PermissionError("it asks for a token, and there is none here to show"))
    if _refuses(address):
        raise _no_cluster(address, PermissionError("it refuses the token that is here"))


def _refuses(address: str) -> bool:
    """Whether any call is refused: for want of a token, or of the right one.

    Raises `TemporaryError` where no head answers: Ray itself would try for minutes, deaf to signals.
    """
    try:
        with init_grpc_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # as Ray's own clients
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")(b"", timeout=ANSWER_TIMEOUT_S)
    except exceptions.AuthenticationError as error:  # RAY_AUTH_MODE=token, and no token
        raise _no_cluster(address, error) from error
    except grpc.RpcError as error:
        code = error.code() if isinstance(error, grpc.Call) else None  # type: ignore[no-untyped-call]
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return True
        if code is not grpc.StatusCode.UNIMPLEMENTED:  # as of another version of Ray, which says so itself
            raise _no_cluster(
                address, ConnectionError("what listens there does not answer as the head of one")
            ) from error
    return False


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


def _origin_of(address: str) -> str:
    return " (from RAY_ADDRESS)" if address == os.environ.get("RAY_ADDRESS") else ""


def _require_listening(address: str) -> None:
    """Ray itself would wait for minutes, without a word, for an address where nothing is."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 1 << 16 or {"/", "@"} & set(host):
        raise SpecError(
            "SpecInvalid",
            f"the Ray address {redact_address(address)!r}{_origin_of(address)} is not HOST:PORT",
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
        next_step="check the address, and that the cluster runs there (RAY_AUTH_MODE=token ray status --address=...); "
        "one that asks for a token must find it here: in RAY_AUTH_TOKEN, or in ~/.ray/auth_token as on its head",
    )
