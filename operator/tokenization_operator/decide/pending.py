"""Finds changes to a job since its attempt began; they take effect with the next attempt. Pure."""

from __future__ import annotations

from typing import Any

from tokenization_operator.decide.context import Context
from tokenization_worker.api.keys import attempt_digest, pods_digest
from tokenization_worker.api.status import AttemptStatus
from tokenization_worker.api.types.reasons import StatusReason

EVENT = StatusReason.CHANGED_FOR_NEXT_ATTEMPT
HOW_TO_BEGIN_IT = "to begin it now, set spec.suspend to true, then to false"
_LIMITS = ("maxQuarantined", "maxCorruptFiles")
_MOST_LETTERS = 120


def pending_changes(context: Context, attempt: AttemptStatus) -> str | None:
    """`workers 2 → 3: from the next attempt`; None if the attempt runs as the job is now."""
    known = attempt.spec_digest
    if (
        known is not None and pods_digest(context.observation.job) == known
    ):  # fields that only the operator reads take effect at once
        return None
    if attempt_digest(context.observation.job) == context.run.spec_digest:
        return None
    changed = [f"{name} {old} → {new}" for name, old, new in _values(context, attempt) if old != new]
    return f"{', '.join(changed) or 'the job has changed'}: from the next attempt"


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
