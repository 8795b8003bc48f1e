"""How a plan or an attempt went wrong, if it did. Decides; does no I/O.

What a Pod of ours has reported itself outranks what Kubernetes and KubeRay say of it, except that a killed container
cannot report.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenization_operator.decide.retry_policy import Blame, Failure, of_report
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.objects.reading import Object, condition
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import (
    Trouble,
    last_words,
    may_nodes_come,
    memory_words,
    out_of_memory,
    word_of_autoscaler,
)
from tokenization_operator.observe.rayjob_status import RayState, Stage, find_head
from tokenization_worker.api.checkpoint import FailureReport
from tokenization_worker.api.status import AttemptStatus
from tokenization_worker.api.types.times import seconds_since


def failure_of_plan(job: Object, seen: Observation, ended_s: float, grace_s: float) -> Failure | None:
    """None while the plan Job works, or was seen to have ended well `ended_s` ago and its report may still come."""
    name = job["metadata"]["name"]
    report = seen.reports.plan.failure if seen.reports.plan else None
    if report is not None and (report.pod or "").startswith(f"{name}-"):
        return of_report(report, 0)
    failed = condition(job, "Failed")
    if failed is not None:
        report = last_words(seen.pods)
        if report is not None:
            return of_report(report, 0)
        killed = _killed_for_memory(seen.pods, 0)
        if killed is not None:
            return killed
        if failed.get("reason") == "DeadlineExceeded":
            words = f"Job {name} did not end in time. Last seen: {seen.status.reason}: {seen.status.message}"
            return Failure(0, "PlanDeadline", words, Blame.INFRASTRUCTURE)
        words = f"Job {name} failed without a word: {failed.get('message', '')}"
        return Failure(0, "PlanLost", words, Blame.INFRASTRUCTURE)
    if condition(job, "Complete") is not None and ended_s >= grace_s:
        return Failure(0, "PlanNotReported", f"Job {name} ended well and reported no plan", Blame.INFRASTRUCTURE)
    return None


def failure_of_ray_job(
    state: RayState, attempt: AttemptStatus, seen: Observation, ended_s: float, grace_s: float
) -> Failure | None:
    """None while the RayJob works, or was seen to have ended well `ended_s` ago and the driver's commit may still come.

    A driver's own last word ends an attempt at once: KubeRay waits for its submitter's retries.
    """
    number = attempt.number
    if _report_of(seen, number) is not None:
        return _of_failed(state, number, seen)
    if attempt.head_pod is not None and not state.is_over and not _has_head(seen.pods, attempt.head_pod):
        return _of_lost_head(attempt.head_pod, number, seen)
    match state.stage:
        case Stage.REFUSED:
            return Failure(number, "ClusterRejected", f"KubeRay refuses the RayJob: {state.message}", Blame.FINAL)
        case Stage.FAILED:
            return _of_failed(state, number, seen)
        case Stage.ENDED if state.reason == "STOPPED":
            return Failure(number, "RayJobStopped", "the RayJob was stopped from outside", Blame.INFRASTRUCTURE)
        case Stage.ENDED if state.reason == "FAILED":
            return _of_failed(state, number, seen)
        case Stage.ENDED if ended_s >= grace_s:
            words = f"the driver ended well {grace_s:.0f} s ago and has not reported its commit"
            return Failure(number, "CommitMissing", words, Blame.INFRASTRUCTURE)
    return None


def failure_of_trouble(trouble: Trouble, waited_s: float, seen: Observation, number: int) -> Failure | None:
    """Of a Pod that cannot start and has had `waited_s` for that; None while it may still come up."""
    if trouble.limit_s is None or waited_s < trouble.limit_s:
        return None
    words = join(trouble.message, f"It was so for {trouble.limit_s / 60:.0f} minutes")
    if trouble.reason == "Unschedulable":
        if seen.pod_events is None or may_nodes_come(seen.pod_events, _age_s(trouble.pod, seen)):
            return None
        last = word_of_autoscaler(seen.pod_events)
        said = "no cluster autoscaler says that it would add one" if last is None else last.message
        words = f"{words}, and no node will come: {join(said, 'Ask for less, or add such nodes')}"
    if not trouble.is_final:
        return Failure(number, trouble.reason, words, Blame.INFRASTRUCTURE)
    words += (
        ". Correct the job; or make what is missing, and then change any limit of the job, such as infraRetryLimit: "
        "the run goes on"
    )
    return Failure(number, trouble.reason, words, Blame.FINAL)


def _age_s(name: str, seen: Observation) -> float:
    made = (pod["metadata"].get("creationTimestamp") for pod in seen.pods if pod["metadata"]["name"] == name)
    return seconds_since(next(made, None), seen.now) or 0.0


def _of_failed(state: RayState, number: int, seen: Observation) -> Failure:
    report = _report_of(seen, number)
    killed = _killed_for_memory(seen.pods, number)
    if killed is not None and (report is None or report.exit_code in (1, 5)):
        return killed
    if report is not None:
        return of_report(report, number)
    return Failure(number, state.reason or "RayJobFailed", state.message or "the RayJob failed", Blame.INFRASTRUCTURE)


def _report_of(seen: Observation, number: int) -> FailureReport | None:
    progress = seen.reports.progress
    if progress is None or progress.failure is None or progress.failure.attempt != number:
        return None
    return progress.failure


def _of_lost_head(name: str, number: int, seen: Observation) -> Failure:
    """KubeRay would make another head and submit the job again: what has begun with this one ends with it."""
    killed = _killed_for_memory((pod for pod in seen.pods if pod["metadata"]["name"] == name), number)
    lost = Failure(number, "HeadLost", f"head Pod {name} is gone, and the driver with it", Blame.INFRASTRUCTURE)
    return killed or lost


def _killed_for_memory(pods: Iterable[Object], number: int) -> Failure | None:
    killed = out_of_memory(pods)
    return None if killed is None else Failure(number, "WorkerMemory", memory_words(killed), Blame.INFRASTRUCTURE)


def _has_head(pods: tuple[Object, ...], name: str) -> bool:
    head = find_head(pods)
    return head is not None and head["metadata"]["name"] == name
