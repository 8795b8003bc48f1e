"""Interprets errors of the API server. Pure."""

from __future__ import annotations

import json

from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.objects.admission import is_of_admission
from tokenization_operator.objects.reading import Object

TIMEOUT_S = 30.0
"""Timeout of a request."""

_REFUSALS = frozenset({400, 403, 422})


def is_locked(ray_job: Object) -> bool:
    """Whether the API server kept the field that locks the dashboard."""
    return "authOptions" in (ray_job.get("spec") or {}).get("rayClusterSpec", {})


def is_refusal(error: ApiException) -> bool:
    """Whether the API server rejects the object itself; a webhook that does not answer is a 500."""
    return error.status in _REFUSALS or (error.status == 500 and "webhook" in describe_error(error))


def is_malformed(error: ApiException) -> bool:
    """Whether the API server finds the object itself wrong, and not a policy, whose denials are 422, too, a quota or a
    webhook."""
    return error.status in (400, 422) and not is_of_admission(describe_error(error))


def describe_error(error: BaseException) -> str:
    """The API server's message for a failed call, or type and text of any other exception. The text is never empty."""
    if not isinstance(error, ApiException):
        silent = "no answer in time" if isinstance(error, TimeoutError) else "the error has no text"
        return f"{type(error).__name__}: {str(error) or silent}"
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"
