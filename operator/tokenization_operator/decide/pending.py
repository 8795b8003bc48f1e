"""Finds changes to a job since its attempt began; they take effect with the next attempt. Pure."""

from __future__ import annotations

import json
from typing import Any

from tokenization_operator.decide.context import Context
from tokenization_operator.objects.names import FIELDS_ANNOTATION, QUEUE_FIELDS
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.keys import attempt_digest, field_digests, pods_digest
from tokenization_worker.api.status import AttemptStatus
from tokenization_worker.api.types.reasons import StatusReason

EVENT = StatusReason.CHANGED_FOR_NEXT_ATTEMPT
HOW_TO_BEGIN_IT = "to begin it now, set spec.suspend to true, then to false"
_LIMITS = ("maxQuarantined", "maxCorruptFiles")
_WITH_VALUES = ("workers.replicas", "image", *_LIMITS)
_MOST_LETTERS = 120
_MOST_FIELDS = 8


def pending_changes(context: Context, attempt: AttemptStatus, ray_job: Object) -> str | None:
    """`workers 2 → 3, env: from the next attempt`; None if the attempt runs as the job is now."""
    before = _fields_of(ray_job)
    changed = [*_changes_of_queue(context, before), *_changes_of_spec(context, attempt, before)]
    return f"{', '.join(changed)}: from the next attempt" if changed else None


def _changes_of_queue(context: Context, before: dict[str, Any]) -> list[str]:
    """Labels that the operator copies when it creates the RayJob; nothing for the RayJob of an older operator."""
    labels = context.observation.job.metadata.labels
    both = [(name, before.get(name), labels.get(key, "")) for name, key in QUEUE_FIELDS.items()]
    return [f"{name} {old or '(none)'} → {new or '(none)'}" for name, old, new in both if old not in (None, new)]


def _changes_of_spec(context: Context, attempt: AttemptStatus, before: dict[str, Any]) -> list[str]:
    known = attempt.spec_digest
    if (
        known is not None and pods_digest(context.observation.job) == known
    ):  # fields that only the operator reads take effect at once
        return []
    if attempt_digest(context.observation.job) == context.run.spec_digest:
        return []
    values = [f"{name} {old} → {new}" for name, old, new in _values(context, attempt) if old != new]
    return [*values, *_changed_fields(context, before)] or ["the job has changed"]


def _changed_fields(context: Context, before: dict[str, Any]) -> list[str]:
    """Names of changed fields whose earlier value is not known; none for the RayJob of an older operator."""
    if not before:
        return []
    now = field_digests(context.job)
    names = (before.keys() | now.keys()) - QUEUE_FIELDS.keys()
    changed = sorted(name for name in names if before.get(name) != now.get(name))
    named = [name for name in changed if name not in _WITH_VALUES]
    left_out = len(named) - _MOST_FIELDS
    return named if left_out <= 0 else [*named[:_MOST_FIELDS], f"{left_out} more"]


def _fields_of(ray_job: Object) -> dict[str, Any]:
    """What `FIELDS_ANNOTATION` says; empty if an older operator has created the RayJob."""
    text = (ray_job["metadata"].get("annotations") or {}).get(FIELDS_ANNOTATION, "{}")
    try:
        found = json.loads(text)
    except ValueError:  # another client has written it
        return {}
    return found if isinstance(found, dict) else {}


def _values(context: Context, attempt: AttemptStatus) -> list[tuple[str, Any, Any]]:
    """Fields whose earlier value is known: name, old value, new value."""
    limits = ((context.observation.checkpoint or {}).get("spec") or {}).get("attempt") or {}
    spec = context.job.spec
    return [
        ("workers", attempt.replicas, spec.workers.replicas),
        ("image", _short(attempt.image or context.image.name), _short(context.image.name)),
        *(
            (name, limits.get(name, now), now)
            for name, now in zip(_LIMITS, (spec.max_quarantined, spec.max_corrupt_files), strict=True)
        ),
    ]


def _short(image: str) -> str:
    """Keep the end of an image's name, which distinguishes it from others."""
    return image if len(image) <= _MOST_LETTERS else f"...{image[-_MOST_LETTERS:]}"
