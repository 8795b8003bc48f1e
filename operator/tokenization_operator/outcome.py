"""How a plan or an attempt went wrong, if it did. Decides; does no I/O.

What a Pod of ours has reported itself outranks what Kubernetes and KubeRay say of it, except that a killed container
cannot report.
"""

from __future__ import annotations

from tokenization_operator.failures import Blame, Failure, of_report
from tokenization_operator.observation import Object, Observation, condition
from tokenization_operator.pod_trouble import memory_words, out_of_memory
from tokenization_operator.ray_state import RayState, Stage
from tokenization_operator.times import seconds_since
from tokenization_worker.api.checkpoint import FailureReport
from tokenization_worker.api.status import AttemptStatus


def failure_of_plan(job: Object, seen: Observation, grace_s: float) -> Failure | None:
    """None while the plan Job works, or has ended well and its report may still come."""
    name = job["metadata"]["name"]
    report = seen.reports.plan.failure if seen.reports.plan else None
    if report is not None and (report.pod or "").startswith(f"{name}-"):
        return of_report(report, 0)
    failed = condition(job, "Failed")
    if failed is not None:
        killed = out_of_memory(seen.pods)
        if killed is not None:
            return Failure(0, "WorkerMemory", memory_words(killed), Blame.INFRASTRUCTURE)
        if failed.get("reason") == "DeadlineExceeded":
            words = f"Job {name} did not end in time. Last seen: {seen.status.reason}: {seen.status.message}"
            return Failure(0, "PlanDeadline", words, Blame.INFRASTRUCTURE)
        words = f"Job {name} failed without a word: {failed.get('message', '')}"
        return Failure(0, "PlanLost", words, Blame.INFRASTRUCTURE)
    complete = condition(job, "Complete")
    if complete is not None and (seconds_since(complete.get("lastTransitionTime"), seen.now) or 0.0) > grace_s:
        return Failure(0, "PlanNotReported", f"Job {name} ended well and reported no plan", Blame.INFRASTRUCTURE)
    return None


def failure_of_ray_job(state: RayState, attempt: AttemptStatus, seen: Observation, grace_s: float) -> Failure | None:
    """None while the RayJob works, or has ended well and the driver's commit may still come."""
    number = attempt.number
    match state.stage:
        case Stage.REFUSED:
            return Failure(number, "ClusterRejected", f"KubeRay refuses the RayJob: {state.message}", Blame.FINAL)
        case Stage.FAILED:
            return _of_failed(state, number, seen)
        case Stage.ENDED if state.reason == "STOPPED":
            return Failure(number, "RayJobStopped", "somebody has stopped the RayJob", Blame.INFRASTRUCTURE)
        case Stage.ENDED if state.reason == "FAILED":
            return _of_failed(state, number, seen)
        case Stage.ENDED if (seconds_since(state.ended, seen.now) or 0.0) > grace_s:
            words = f"the driver ended well {grace_s:.0f} s ago and has not reported its commit"
            return Failure(number, "CommitMissing", words, Blame.INFRASTRUCTURE)
    return None


def _of_failed(state: RayState, number: int, seen: Observation) -> Failure:
    report = _report_of(seen, number)
    killed = out_of_memory(seen.pods)
    if killed is not None and (report is None or report.exit_code in (1, 5)):
        return Failure(number, "WorkerMemory", memory_words(killed), Blame.INFRASTRUCTURE)
    if report is not None:
        return of_report(report, number)
    if state.is_submitted and not _has_head(seen.pods):
        return Failure(number, "HeadLost", f"the head Pod is gone. {state.message}", Blame.INFRASTRUCTURE)
    return Failure(number, state.reason or "RayJobFailed", state.message or "the RayJob failed", Blame.INFRASTRUCTURE)


def _report_of(seen: Observation, number: int) -> FailureReport | None:
    progress = seen.reports.progress
    if progress is None or progress.failure is None or progress.failure.attempt != number:
        return None
    return progress.failure


def _has_head(pods: tuple[Object, ...]) -> bool:
    return any(
        (pod["metadata"].get("labels") or {}).get("ray.io/node-type") == "head"
        and (pod.get("status") or {}).get("phase") == "Running"
        for pod in pods
    )
