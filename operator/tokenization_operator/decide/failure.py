"""Finds how a plan or an attempt failed, if it did. Pure.

A report of our own Pod takes precedence over Kubernetes and KubeRay, except that a killed container cannot report.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenization_operator.decide.retry_policy import Blame, Failure, of_report
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.objects.names import head_pod_prefix
from tokenization_operator.objects.reading import Object, condition
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import (
    Diagnosis,
    find_oom_killed,
    last_autoscaler_event,
    may_nodes_come,
    oom_advice,
    read_termination_message,
)
from tokenization_operator.observe.rayjob_status import RayState, Stage, find_head
from tokenization_worker.api.checkpoint import FailureReport
from tokenization_worker.api.status import AttemptStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import seconds_since

_JOB_TOO_LONG = "DeadlineExceeded"
"""The reason of Kubernetes for a Job that was ended after `activeDeadlineSeconds`."""


def failure_of_plan(job: Object, observation: Observation, ended_s: float, grace_s: float) -> Failure | None:
    """None while the plan Job works, or while a report may still arrive after it ended well `ended_s` ago."""
    name = job["metadata"]["name"]
    report = observation.reports.plan.failure if observation.reports.plan else None
    if report is not None and (report.pod or "").startswith(f"{name}-"):
        return of_report(report, 0)
    failed = condition(job, "Failed")
    if failed is not None:
        report = read_termination_message(observation.pods)
        if report is not None:
            return of_report(report, 0)
        killed = _killed_for_memory(observation.pods, 0)
        if killed is not None:
            return killed
        if failed.get("reason") == _JOB_TOO_LONG:
            words = (
                f"Job {name} did not end in time. Last state: {observation.status.reason}: {observation.status.message}"
            )
            return Failure(0, StatusReason.PLAN_DEADLINE, words, Blame.INFRASTRUCTURE)
        words = f"Job {name} failed without a message: {failed.get('message', '')}"
        return Failure(0, StatusReason.PLAN_LOST, words, Blame.INFRASTRUCTURE)
    if condition(job, "Complete") is not None and ended_s >= grace_s:
        return Failure(
            0, StatusReason.PLAN_NOT_REPORTED, f"Job {name} succeeded but reported no plan", Blame.INFRASTRUCTURE
        )
    return None


def failure_of_ray_job(
    state: RayState, attempt: AttemptStatus, observation: Observation, ended_s: float, grace_s: float
) -> Failure | None:
    """None while the RayJob works, or while the commit may still arrive after it ended well `ended_s` ago.

    A failure that the driver reports ends the attempt at once: KubeRay waits for its submitter's retries. While the
    RayJob is suspended its Pods are taken away, so what follows from that is no failure.
    """
    number = attempt.number
    report = _report_of(observation, attempt)
    if report is not None:
        failure = _of_failed(state, number, observation, report)
        is_taken_away = state.stage is Stage.QUEUED and failure.blame is Blame.INFRASTRUCTURE
        return None if is_taken_away else failure
    if state.stage is Stage.QUEUED:
        return None
    if attempt.head_pod is not None and not state.is_over and not _has_head(observation.pods, attempt.head_pod):
        return _of_lost_head(attempt.head_pod, number, observation)
    match state.stage:
        case Stage.REFUSED:
            return Failure(
                number, StatusReason.CLUSTER_REJECTED, f"KubeRay refuses the RayJob: {state.message}", Blame.FINAL
            )
        case Stage.FAILED:
            return _of_failed(state, number, observation, None)
        case Stage.ENDED if state.was_stopped:
            return Failure(
                number, StatusReason.RAY_JOB_STOPPED, "the RayJob was stopped from outside", Blame.INFRASTRUCTURE
            )
        case Stage.ENDED if state.has_job_failed:
            return _of_failed(state, number, observation, None)
        case Stage.ENDED if ended_s >= grace_s:
            words = f"the driver succeeded {grace_s:.0f} s ago but has not reported its commit"
            return Failure(number, StatusReason.COMMIT_MISSING, words, Blame.INFRASTRUCTURE)
    return None


def failure_of_diagnosis(
    diagnosis: Diagnosis, waited_s: float, observation: Observation, number: int
) -> Failure | None:
    """The failure of a Pod that has been unable to start for `waited_s`; None while it may still start."""
    if diagnosis.limit_s is None or waited_s < diagnosis.limit_s:
        return None
    words = join(diagnosis.message, f"This lasted for {diagnosis.limit_s / 60:.0f} minutes")
    if diagnosis.reason is StatusReason.UNSCHEDULABLE:
        if observation.pod_events is None or may_nodes_come(observation.pod_events, _age_s(diagnosis.pod, observation)):
            return None
        last = last_autoscaler_event(observation.pod_events)
        said = "no cluster autoscaler reports that it would add one" if last is None else last.message
        words = f"{words}, and no node will come: {join(said, 'Ask for less, or add such nodes')}"
    if not diagnosis.is_final:
        return Failure(number, diagnosis.reason, words, Blame.INFRASTRUCTURE)
    words += (
        ". Correct the job; or create what is missing, and then change any limit of the job, such as infraRetryLimit: "
        "the run continues"
    )
    return Failure(number, diagnosis.reason, words, Blame.FINAL)


def _age_s(name: str, observation: Observation) -> float:
    made = (pod["metadata"].get("creationTimestamp") for pod in observation.pods if pod["metadata"]["name"] == name)
    return seconds_since(next(made, None), observation.now) or 0.0


def _of_failed(state: RayState, number: int, observation: Observation, report: FailureReport | None) -> Failure:
    killed = _killed_for_memory(observation.pods, number)
    if killed is not None and (report is None or report.exit_code in (1, 5)):
        return killed
    if report is not None:
        return of_report(report, number)
    return Failure(
        number, state.reason or StatusReason.RAY_JOB_FAILED, state.message or "the RayJob failed", Blame.INFRASTRUCTURE
    )


def _report_of(observation: Observation, attempt: AttemptStatus) -> FailureReport | None:
    """What the attempt's present driver has reported; None of one whose cluster was taken away by a suspension."""
    progress = observation.reports.progress
    if progress is None or progress.failure is None or progress.failure.attempt != attempt.number:
        return None
    pod, cluster = progress.failure.pod or "", attempt.ray_cluster_name
    is_of_ray_job = attempt.ray_job_name is not None and pod.startswith(f"{attempt.ray_job_name}-")
    if is_of_ray_job and (cluster is None or not pod.startswith(head_pod_prefix(cluster))):
        return None
    return progress.failure


def _of_lost_head(name: str, number: int, observation: Observation) -> Failure:
    """KubeRay would create another head and submit the job again; instead the attempt ends with its first head."""
    killed = _killed_for_memory((pod for pod in observation.pods if pod["metadata"]["name"] == name), number)
    lost = Failure(
        number,
        StatusReason.HEAD_LOST,
        f"head Pod {name} no longer exists, so its driver has ended",
        Blame.INFRASTRUCTURE,
    )
    return killed or lost


def _killed_for_memory(pods: Iterable[Object], number: int) -> Failure | None:
    killed = find_oom_killed(pods)
    if killed is None:
        return None
    return Failure(number, StatusReason.WORKER_MEMORY, oom_advice(killed), Blame.INFRASTRUCTURE)


def _has_head(pods: tuple[Object, ...], name: str) -> bool:
    head = find_head(pods)
    return head is not None and head["metadata"]["name"] == name
