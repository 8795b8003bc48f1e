"""Completes the requests and limits of a container that a job sets only in part. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenization_operator.objects.quantities import read_quantity


def complete(
    requests: Mapping[str, Any], limits: Mapping[str, Any], *, cpu: str, memory: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests and limits with defaults: the memory limit equals the request, and no default exceeds a limit."""
    most = {"memory": requests.get("memory", memory)} | dict(limits)
    least = {"cpu": _lower(cpu, most.get("cpu")), "memory": _lower(memory, most["memory"])}
    return least | dict(requests), most


def _lower(amount: str, limit: Any) -> Any:
    return amount if limit is None or read_quantity(amount) <= read_quantity(str(limit)) else limit
