"""The status of a job that this version of the operator cannot read, for example one made for a newer version. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from tokenization_operator.decide.status.conditions import make_conditions
from tokenization_operator.decide.status.truncate import shorten
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.status import Condition, JobStatus, Phase, PlanStatus
from tokenization_worker.api.types.reasons import StatusReason

REASON = StatusReason.NOT_UNDERSTOOD
_NEXT_STEP = "upgrade the operator, or correct the job"


def unsupported_status(found: Object, error: Exception, now: datetime) -> dict[str, Any] | None:
    """The job's status, changed only to say why the operator does nothing; None for a finished job, which needs
    nothing."""
    status: dict[str, Any] = found.get("status") or {}
    phase = _phase_of(status)
    if phase in (Phase.SUCCEEDED, Phase.FAILED):
        return None
    words = shorten(f"this version of the operator cannot read the job; {_NEXT_STEP}: {_what_is_wrong(error)}")
    reported = JobStatus.model_construct(phase=phase, reason=REASON, message=words, plan=_plan_of(status))
    generation = found["metadata"]["generation"]
    conditions = make_conditions(reported, _conditions_of(status), generation, now, obstacle=REASON)
    return status | {
        "observedGeneration": generation,
        "phase": str(phase),
        "reason": REASON,
        "message": words,
        "conditions": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in conditions],
    }


def _phase_of(status: dict[str, Any]) -> Phase:
    try:
        return Phase(status.get("phase") or Phase.PENDING)
    except ValueError:
        return Phase.PENDING


def _plan_of(status: dict[str, Any]) -> PlanStatus | None:
    if not status.get("plan"):
        return None
    try:
        return PlanStatus.model_validate(status["plan"])
    except ValidationError:
        return PlanStatus()


def _conditions_of(status: dict[str, Any]) -> list[Condition]:
    try:
        return [Condition.model_validate(each) for each in status.get("conditions") or ()]
    except ValidationError:
        return []


def _what_is_wrong(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
