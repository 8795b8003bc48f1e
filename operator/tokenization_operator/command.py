"""`tokenization-operator`: the operator as a process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from importlib import metadata

import kopf
from kubernetes.aio import client, config
from prometheus_client import start_http_server

from tokenization_operator.handlers import NO_CLUSTER, Operator
from tokenization_operator.informer.no_persistence import NoMemories
from tokenization_operator.kube.preflight import find_missing
from tokenization_operator.metrics import Metrics
from tokenization_operator.settings import VARIABLES, Settings, SettingsInvalid

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_PROBES = "http://{address}:{port}/healthz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM. Exit codes: 0 on SIGTERM, 2 for invalid settings, 1 for any other failure."""
    options = _parser().parse_args(arguments)
    try:
        settings = Settings.from_environment()
    except SettingsInvalid as error:
        print(f"tokenization-operator: {error}", file=sys.stderr)
        return 2
    set_up_logs("debug" if options.verbose else options.log_level, is_plain=options.plain)
    if options.check:
        return asyncio.run(_check())
    address = options.bind_address
    if options.metrics_port == options.health_port != 0:
        print("tokenization-operator: --metrics-port and --health-port are the same: give two", file=sys.stderr)
        return 2
    try:
        for name in ("metrics_port", "health_port"):
            require_free(address, getattr(options, name), f"--{name.replace('_', '-')}")
    except PortTaken as error:
        print(f"tokenization-operator: {error}", file=sys.stderr)
        return 2
    metrics = Metrics()
    if options.metrics_port:
        start_http_server(options.metrics_port, address, registry=metrics.registry)
    registry = kopf.OperatorRegistry()
    operator = Operator(settings, metrics)
    operator.register(registry)
    probes = _PROBES.format(address=f"[{address}]" if ":" in address else address, port=options.health_port)
    asyncio.run(_serve(operator, registry, settings, probes if options.health_port else None))
    return 1 if operator.has_failed else 0


def set_up_logs(level: str, *, is_plain: bool = False) -> None:
    """Log at one of `LEVELS`. What Kopf and aiohttp say of each event and each probe is logged at `debug` only."""
    kopf.configure(log_format=kopf.LogFormat.FULL if is_plain else kopf.LogFormat.JSON)
    least = LEVELS[level]
    logging.getLogger().setLevel(least)
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(least if least == logging.DEBUG else max(least, logging.WARNING))


class PortTaken(Exception):
    """The operator cannot listen at a port; the message names the port and the next step."""


def require_free(address: str, port: int, flag: str) -> None:
    """Raise `PortTaken` unless the operator can listen at this port; port 0 disables listening."""
    if not port:
        return
    if not 0 < port < 1 << 16:
        raise PortTaken(f"{flag} {port} is not a port: give a number from 1 to 65535, or 0 for none")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, port), family=family).close()
    except OSError as error:
        words = os.strerror(error.errno) if error.errno else str(error)
        raise PortTaken(f"cannot listen at {address} port {port}: {words}. Give another one with {flag}") from None


async def _serve(
    operator: Operator, registry: kopf.OperatorRegistry, settings: Settings, liveness_endpoint: str | None
) -> None:
    await kopf.operator(
        registry=registry,
        memories=NoMemories(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=liveness_endpoint,
        stop_flag=operator.stop_flag,
    )


async def _check() -> int:
    try:
        await config.load_config()
    except config.ConfigException as error:
        print(f"tokenization-operator: {NO_CLUSTER}: {error}", file=sys.stderr)
        return 1
    async with client.ApiClient() as api:
        missing = await find_missing(api)
    print("\n".join(missing) or "the cluster has all that the operator needs")
    return 1 if missing else 0


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, VARIABLES))
    variables = "\n".join(f"  {name:<{width}}  {words}" for name, words in VARIABLES.items())
    parser = argparse.ArgumentParser(
        prog="tokenization-operator",
        description="Reconcile TokenizationJobs: plan them, give them Ray clusters, report progress.",
        epilog=f"environment:\n{variables}\n\nexit codes: 0 stopped by a signal, 1 cannot continue, 2 invalid settings",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--metrics-port", type=int, default=8081, help="for Prometheus; 0: none (8081)")
    parser.add_argument("--bind-address", default="0.0.0.0", help="where both listen; :: for IPv6 (0.0.0.0)")
    parser.add_argument("--health-port", type=int, default=8080, help="/healthz; 0: none (8080)")
    parser.add_argument(
        "--check", action="store_true", help="only check that the cluster has all that the operator needs, and end"
    )
    parser.add_argument("--plain", action="store_true", help="readable logs instead of JSON lines")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="the least severe lines; debug: also what Kopf does (info)"
    )
    parser.add_argument("--verbose", action="store_true", help="the same as --log-level debug")
    parser.add_argument("--version", action="version", version=metadata.version("tokenization"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
