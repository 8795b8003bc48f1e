"""Derives a job's conditions from the rest of its status. Pure.

A condition's reason never contradicts the status. Accepted, Planned, Complete and Ready are always present; the others
only while they carry information: QuotaReserved for a job in a queue, ClusterReady while a cluster is wanted, and
Suspended, Failed, Reconciling and Stalled while they are true. kstatus takes a job without conditions for finished; it
reads Ready, Reconciling and Stalled, absent ones as False. `kubectl wait` reads Complete and Failed.
`lastTransitionTime` changes only with the status of a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from tokenization_operator.decide.status.printer_columns import plan_words, ready_words
from tokenization_worker.api.status import Condition, JobStatus, Phase
from tokenization_worker.api.types.times import time_text

_AT_REST = (Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED)
_QUEUE_MATTERS = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)
_CLUSTER_MATTERS = (*_QUEUE_MATTERS, Phase.RETRYING)


class _Row(NamedTuple):
    kind: str
    holds: bool
    reason: str
    message: str = ""


def make_conditions(
    status: JobStatus,
    before: Iterable[Condition],
    generation: int,
    now: datetime,
    *,
    obstacle: str = "",
    in_queue: bool = False,
) -> list[Condition]:
    """All conditions of a job. `obstacle`: why the operator cannot work on it, if so; `in_queue`: Kueue decides when
    its cluster is admitted."""
    known = {each.type: each for each in before}

    def condition(row: _Row) -> Condition:
        holds, old = "True" if row.holds else "False", known.get(row.kind)
        since = None if old is None or old.status != holds else old.last_transition_time
        return Condition(
            type=row.kind,
            status=holds,
            observed_generation=generation,
            last_transition_time=since or time_text(now),
            reason=row.reason,
            message=row.message,
        )

    return [condition(row) for row in _rows(status, obstacle, in_queue=in_queue)]


def _rows(status: JobStatus, obstacle: str, *, in_queue: bool) -> Iterator[_Row]:
    phase = status.phase or Phase.PENDING
    reason, message = status.reason or str(phase), status.message or ""
    yield _Row("Accepted", not obstacle, obstacle or "Accepted", message if obstacle else "")
    if status.plan is not None:
        yield _Row("Planned", True, "Planned", plan_words(status.plan))
    else:  # a dataset that is already complete needs no plan
        yield _Row("Planned", phase is Phase.SUCCEEDED, reason, message)
    if status.plan is not None and in_queue and phase in _QUEUE_MATTERS:
        yield _quota(status)
    if status.plan is not None and phase in _CLUSTER_MATTERS:
        is_ready = phase is Phase.RUNNING
        yield _Row(
            "ClusterReady", is_ready, *(("Running", ready_words(status.workers)) if is_ready else (reason, message))
        )
    if phase is Phase.SUSPENDED:
        yield _Row("Suspended", True, reason, message)
    is_complete, has_failed = phase is Phase.SUCCEEDED, phase is Phase.FAILED
    yield _Row("Complete", is_complete, *((reason, message) if is_complete else (str(phase), "")))
    if has_failed:
        yield _Row("Failed", True, reason, message)
    yield _Row("Ready", is_complete, reason, message)
    if phase not in _AT_REST:
        yield _Row("Reconciling", True, reason, message)
    if has_failed:
        yield _Row("Stalled", True, reason, message)


def _quota(status: JobStatus) -> _Row:
    attempt = status.attempt
    is_admitted = attempt is not None and attempt.admitted_time is not None and not attempt.is_over
    if is_admitted and status.phase is not Phase.QUEUED:
        return _Row("QuotaReserved", True, "Admitted")
    is_queued = status.phase is Phase.QUEUED
    return _Row("QuotaReserved", False, "Queued" if is_queued else "NotAskedFor", status.message or "")
