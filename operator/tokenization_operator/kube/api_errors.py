"""What answers of the API server mean. Decides; does no I/O."""

from __future__ import annotations

import json

from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.objects.reading import Object

TIMEOUT_S = 30.0
"""How long an answer is waited for."""

_REFUSALS = frozenset({400, 403, 422})


def is_locked(ray_job: Object) -> bool:
    """Whether the field that locks its dashboard has survived."""
    return "authOptions" in (ray_job.get("spec") or {}).get("rayClusterSpec", {})


def is_refusal(error: ApiException) -> bool:
    """Whether the API server does not take an object; a webhook that does not answer is a 500."""
    return error.status in _REFUSALS or (error.status == 500 and "webhook" in describe_error(error))


def describe_error(error: BaseException) -> str:
    """What the API server says of a failed call, or what else went wrong."""
    if not isinstance(error, ApiException):
        return f"{type(error).__name__}: {error}"
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"
