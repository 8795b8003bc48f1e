"""Computes the metrics of jobs from their cached objects. Pure; `metrics` exports them.

The number of series for single jobs is limited: active jobs come first, then failed ones, then the rest, newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tokenization_operator.objects.reading import Object
from tokenization_worker.api.job import JobSpec
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.api.types.times import read_time, seconds_since

MOST_JOBS = 500
"""A job has at most nine series."""

_DEFAULT_LIMIT = JobSpec.model_fields["max_quarantined"].default

GAUGES: Mapping[str, str] = {
    "tokens": "Tokens that the run has written.",
    "progress_ratio": "How much of the run is done, from 0 to 1.",
    "last_progress_timestamp_seconds": "When the operator saw the last new range or shard, or the driver begin.",
    "attempts": "Attempts of the run.",
    "failures": "Failed plans and attempts of the run that count for backoffLimit or infraRetryLimit.",
    "quarantined_documents": "Documents that the run has quarantined.",
    "quarantined_limit_ratio": "Quarantined documents as a share of what maxQuarantined allows for what was read.",
}
"""Help text by the name after `tokenization_job_`."""

_OVER = (Phase.SUCCEEDED, Phase.FAILED)
_AT_REST = (*_OVER, Phase.SUSPENDED)


@dataclass(frozen=True, slots=True)
class JobSample:
    """The metrics of one job; `values` has a subset of `GAUGES`."""

    namespace: str
    name: str
    phase: str
    reason: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in seconds of what this status change completed."""

    run: float | None = None
    plan: float | None = None
    start: float | None = None


def count_phases(jobs: Iterable[Object]) -> dict[str, int]:
    """Count jobs in every phase, including empty ones. A job without a status is Pending."""
    found = Counter(_phase(job) for job in jobs)
    return {str(phase): found[phase] for phase in Phase}


def choose_jobs(jobs: Iterable[Object], most: int = MOST_JOBS) -> list[Object]:
    """Choose the jobs whose series are exported."""
    newest_first = sorted(jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(newest_first, key=_rank)[:most]


def name_of(job: Object) -> tuple[str, str]:
    """Namespace and name."""
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _rank(job: Object) -> int:
    phase = _phase(job)
    if phase not in _AT_REST:
        return 0
    return 1 if phase == Phase.FAILED else 2


def sample_job(job: Object) -> JobSample:
    """Read a job's metrics; values that its status does not have are omitted."""
    metadata, status = job["metadata"], job.get("status") or {}
    values = {name: value for name, value in _values(job, status).items() if value is not None}
    return JobSample(metadata["namespace"], metadata["name"], _phase(job), str(status.get("reason") or ""), values)


def _values(job: Object, status: Mapping[str, Any]) -> dict[str, float | None]:
    progress, attempt = status.get("progress") or {}, status.get("attempt") or {}
    failures = status.get("failures") or {}
    percent, quarantined = _number(progress, "percent"), _number(progress, "quarantined")
    got_on = read_time(attempt.get("progressTime") or attempt.get("runningTime"))
    read = (_number(progress, "documents") or 0.0) + (quarantined or 0.0)
    limit = (job.get("spec") or {}).get("maxQuarantined", _DEFAULT_LIMIT)
    return {
        "tokens": _number(progress, "tokens"),
        "progress_ratio": None if percent is None else percent / 100,
        "last_progress_timestamp_seconds": None if got_on is None else got_on.timestamp(),
        "attempts": _number(attempt, "number") or 0.0,
        "failures": (_number(failures, "application") or 0.0) + (_number(failures, "infrastructure") or 0.0),
        "quarantined_documents": quarantined,
        "quarantined_limit_ratio": None if quarantined is None else _share_of_limit(quarantined, read, limit),
    }


def _share_of_limit(quarantined: float, read: float, limit: int | str) -> float | None:
    """None for a limit that this version cannot parse."""
    try:
        parsed = Limit.parse(limit)
    except ValueError:
        return None
    if not quarantined:
        return 0.0
    allowed = float(parsed.count or 0) if parsed.share is None else float(parsed.share) * read
    return quarantined / allowed if allowed else float("inf")


def find_durations(before: JobStatus, after: JobStatus, now: datetime, plan_began: str | None) -> Durations:
    """Find what a status change completed. `plan_began`: creation time of the Job that plans the run."""
    began = after.run.start_time if after.run else None
    run = plan = start = None
    if after.phase in _OVER and before.phase not in _OVER:
        run = seconds_since(began, now)
    if before.plan is None and after.plan is not None:
        plan = seconds_since(plan_began or began, now)
    if after.phase is Phase.RUNNING and before.phase is not Phase.RUNNING and after.attempt is not None:
        start = seconds_since(after.attempt.admitted_time or after.attempt.start_time, now)
    return Durations(*(None if each is None else max(0.0, each) for each in (run, plan, start)))


def _phase(job: Object) -> str:
    return str((job.get("status") or {}).get("phase") or Phase.PENDING)


def _number(block: Mapping[str, Any], name: str) -> float | None:
    value = block.get(name)
    return None if value is None else float(value)
