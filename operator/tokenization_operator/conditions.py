"""The conditions of a job, derived from where it stands. Decides; does no I/O.

kstatus reads Ready, Reconciling and Stalled, and takes a job without conditions for a finished one: they are never
left out. `lastTransitionTime` moves only with the status of a condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tokenization_worker.api.status import Condition, JobStatus, Phase
from tokenization_worker.api.times import time_text

_TRUE, _FALSE, _UNKNOWN = "True", "False", "Unknown"
_AT_REST = (Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED)


def make_conditions(
    status: JobStatus, before: Iterable[Condition], generation: int, now: datetime, *, obstacle: str = ""
) -> list[Condition]:
    """All conditions of a job whose status says the rest. `obstacle`: why it cannot be worked on, if so."""
    phase = status.phase or Phase.PENDING
    reason, message = status.reason or str(phase), status.message or ""
    known = {each.type: each for each in before}

    def condition(kind: str, holds: str, why: str, words: str) -> Condition:
        old = known.get(kind)
        moved = old is None or old.status != holds
        return Condition(
            type=kind,
            status=holds,
            observed_generation=generation,
            last_transition_time=time_text(now) if moved or old is None else old.last_transition_time,
            reason=why,
            message=words,
        )

    def says(holds: bool) -> str:
        return _TRUE if holds else _FALSE

    is_over = phase in (Phase.SUCCEEDED, Phase.FAILED)
    is_planned = status.plan is not None
    has_cluster = phase is Phase.RUNNING
    attempt = status.attempt
    is_admitted = attempt is not None and attempt.admitted_time is not None and not attempt.is_over
    has_quota = phase in (Phase.STARTING, Phase.RUNNING) and is_admitted
    return [
        condition("Accepted", says(not obstacle), obstacle or "Accepted", message if obstacle else ""),
        condition("Planned", says(is_planned), "Planned" if is_planned else reason, "" if is_planned else message),
        condition("QuotaReserved", says(has_quota), reason, ""),
        condition("ClusterReady", says(has_cluster), reason, message if phase is Phase.STARTING else ""),
        condition("Suspended", says(phase is Phase.SUSPENDED), reason, ""),
        condition("Complete", says(phase is Phase.SUCCEEDED), reason, message if phase is Phase.SUCCEEDED else ""),
        condition("Failed", says(phase is Phase.FAILED), reason, message if phase is Phase.FAILED else ""),
        condition("Ready", says(phase is Phase.SUCCEEDED), reason, message),
        condition("Reconciling", says(phase not in _AT_REST), reason, message),
        condition("Stalled", says(phase is Phase.FAILED), reason, message if is_over else ""),
    ]
