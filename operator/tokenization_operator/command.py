"""`tokenization-operator`: the operator as a process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from importlib import metadata

import kopf
from kubernetes.aio import client, config
from prometheus_client import start_http_server

from tokenization_operator.handlers import NO_CLUSTER, Operator
from tokenization_operator.metrics import Metrics
from tokenization_operator.preflight import find_missing
from tokenization_operator.settings import VARIABLES, Settings, SettingsInvalid

_PROBES = "http://0.0.0.0:{port}/healthz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; 0 then, 2 for settings that make no sense, 1 for everything else."""
    options = _parser().parse_args(arguments)
    try:
        settings = Settings.from_environment()
    except SettingsInvalid as error:
        print(f"tokenization-operator: {error}", file=sys.stderr)
        return 2
    kopf.configure(verbose=options.verbose, log_format=kopf.LogFormat.FULL if options.plain else kopf.LogFormat.JSON)
    for noisy in ("kopf", "aiohttp.access"):  # they would tell of each event, and of each probe
        logging.getLogger(noisy).setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    metrics = Metrics()
    if options.check:
        return asyncio.run(_check())
    if options.metrics_port:
        start_http_server(options.metrics_port, registry=metrics.registry)
    registry = kopf.OperatorRegistry()
    operator = Operator(settings, metrics)
    operator.register(registry)
    asyncio.run(_serve(operator, registry, settings, options.health_port))
    return 1 if operator.has_failed else 0


async def _serve(operator: Operator, registry: kopf.OperatorRegistry, settings: Settings, health_port: int) -> None:
    await kopf.operator(
        registry=registry,
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=_PROBES.format(port=health_port) if health_port else None,
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
    print("\n".join(missing) or "all that is needed is there")
    return 1 if missing else 0


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, VARIABLES))
    variables = "\n".join(f"  {name:<{width}}  {words}" for name, words in VARIABLES.items())
    parser = argparse.ArgumentParser(
        prog="tokenization-operator",
        description="Reconcile TokenizationJobs: plan them, give them Ray clusters, report progress. One replica.",
        epilog=f"environment:\n{variables}\n\nexit codes: 0 told to stop, 1 it cannot go on, 2 settings make no sense",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--metrics-port", type=int, default=8081, help="for Prometheus; 0: none (8081)")
    parser.add_argument("--health-port", type=int, default=8080, help="/healthz; 0: none (8080)")
    parser.add_argument(
        "--check", action="store_true", help="only look whether the cluster has all that is needed, and end"
    )
    parser.add_argument("--plain", action="store_true", help="logs for people in place of JSON lines")
    parser.add_argument("--verbose", action="store_true", help="also what Kopf does")
    parser.add_argument("--version", action="version", version=metadata.version("tokenization"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
