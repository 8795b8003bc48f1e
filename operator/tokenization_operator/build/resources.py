"""What a container asks for and may take, where a job says only a part of it. Decides; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenization_operator.objects.quantities import read_quantity


def complete(
    requests: Mapping[str, Any], limits: Mapping[str, Any], *, cpu: str, memory: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests and limits of a container for which some are asked: what it may take of memory is what it asks for, and
    no default is above a limit.
    """
    most = {"memory": requests.get("memory", memory)} | dict(limits)
    least = {"cpu": _lower(cpu, most.get("cpu")), "memory": _lower(memory, most["memory"])}
    return least | dict(requests), most


def _lower(amount: str, limit: Any) -> Any:
    return amount if limit is None or read_quantity(amount) <= read_quantity(str(limit)) else limit
