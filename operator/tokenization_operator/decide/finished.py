"""Jobs at rest: finished, with an unchanged spec. When they need the operator again. Pure.

There may be thousands. Only their RayJob or the job itself may become due for deletion, so none is reconciled earlier
or kept unpacked.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tokenization_operator.objects.reading import ENDS, Object, condition, has_ended, is_leaving
from tokenization_operator.observe.rayjob_status import read_ray_job
from tokenization_worker.api.status import Phase
from tokenization_worker.api.types.times import seconds_since


def is_at_rest(job: Object) -> bool:
    """Whether the job has ended and the operator has observed its present generation: no new run, no resumed one."""
    status = job.get("status") or {}
    is_observed = status.get("observedGeneration") == job["metadata"].get("generation")
    return status.get("phase") in (Phase.SUCCEEDED, Phase.FAILED) and is_observed and not is_leaving(job)


def seconds_until_due(
    job: Object, plan_jobs: Iterable[Object], ray_jobs: Iterable[Object], retention_s: float, now: datetime
) -> float | None:
    """Seconds until a job at rest needs a reconcile, as an estimate from its objects; None for never.

    It may be too early, for example for a job that a GitOps tool manages; that reconcile then finds nothing to do.
    """
    waits = [seconds_until_removal(each, retention_s, now) or 0.0 for each in ray_jobs]
    if (job.get("status") or {}).get("phase") == Phase.FAILED:
        waits += [0.0 for each in plan_jobs if not is_leaving(each) and not has_ended(each)]
    ttl = (job.get("spec") or {}).get("ttlSecondsAfterFinished")
    if ttl is not None:
        ended = next((each for kind in ENDS if (each := condition(job, kind)) is not None), {})
        waits.append(ttl - (seconds_since(ended.get("lastTransitionTime"), now) or 0.0))
    return max(0.0, min(waits)) if waits else None


def seconds_until_removal(ray_job: Object, retention_s: float, now: datetime) -> float | None:
    """Seconds until a finished job's RayJob has been retained long enough; None if the RayJob has not ended."""
    state = read_ray_job(ray_job)
    since = seconds_since(state.ended, now)
    return retention_s - since if state.is_over and since is not None else None
