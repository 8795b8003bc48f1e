"""Connects to a Ray cluster, or starts one on this machine. `cluster` reads its nodes."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

import grpc
import ray
from ray import exceptions
from ray._private.grpc_utils import init_grpc_channel

from tokenization_worker.engine.ray.cluster import ANSWER_TIMEOUT_S
from tokenization_worker.engine.ray.signals import announcing_stops, signals_kept
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.redact import redact_address
from tokenization_worker.stop import current_stop, left_when_stopped

CONNECT_TIMEOUT_S = 10.0

_HERE, _OWN = "auto", "local"
"""Ray's words for the cluster that this machine is part of, and for a new one."""

_OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster of our own: receipts are small, and Ray would set aside a third of the memory."""


def connect(address: str | None, processes: int) -> None:
    """To `address` or that of `RAY_ADDRESS`, else to the cluster that this machine is part of, else to a new one here
    of so many CPUs ("local").

    Raises `SpecError` for what is no address, and `TemporaryError` where nothing answers.
    """
    with signals_kept(), announcing_stops(), left_when_stopped():
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
                next_step="run this on a node of the cluster (ray start --address=...), with the cluster's versions of "
                "Ray and Python",
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
        raise _no_cluster(address, PermissionError("the cluster requires a token, and this machine has none"))
    if _refuses(address):
        raise _no_cluster(address, PermissionError("the cluster rejects the token of this machine"))


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
                address, ConnectionError("the server at this address is not the head of a Ray cluster")
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
        next_step="check the address, and check that the cluster runs there (RAY_AUTH_MODE=token ray status "
        "--address=...); if the cluster requires a token, put it on this machine: in RAY_AUTH_TOKEN, or in "
        "~/.ray/auth_token as on its head",
    )
