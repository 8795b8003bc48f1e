"""An attempt whose driver has not counted its ranges yet: what it waits for, and how long. Pure.

Restarting such an attempt loses no work: a changed job gets its next attempt at once, and an attempt that cannot start
releases its machines within minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tokenization_operator.build.sizes import OBJECT_STORE_BYTES, memory_limit
from tokenization_operator.decide.actions import Decision, deletion
from tokenization_operator.decide.context import AT_ONCE_S, SILENCE_S, Context
from tokenization_operator.decide.failure import failure_of_diagnosis
from tokenization_operator.decide.retry_policy import Blame, Failure
from tokenization_operator.decide.status.printer_columns import ready_words, share_of_workers
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, is_leaving, node_type
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import Diagnosis, diagnose
from tokenization_operator.observe.rayjob_status import RayState, Stage
from tokenization_worker.api.keys import pods_digest
from tokenization_worker.api.status import AttemptStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import read_time, seconds_since, time_text


@dataclass(frozen=True, slots=True)
class ActiveAttempt:
    """An attempt whose RayJob exists, with its present state."""

    attempt: AttemptStatus
    job: Object
    state: RayState
    workers: WorkersStatus
    progress: ProgressStatus | None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the job's status."""
        return {"attempt": self.attempt, "workers": self.workers, "progress": self.progress}

    @property
    def account(self) -> str:
        """The ServiceAccount of its Pods; the job may name another one by now."""
        return str(head_template(self.job)["spec"]["serviceAccountName"])

    def diagnosis(self, observation: Observation) -> Diagnosis | None:
        """Why its Pods do not run. Warnings about failed creations no longer hold once all Pods exist."""
        kinds = [node_type(pod) for pod in observation.pods]
        has_all = "head" in kinds and kinds.count("worker") >= (self.workers.desired or 0)
        waits_for_submitter = self.workers.ready == self.workers.desired and "" not in kinds
        return diagnose(observation.pods, () if has_all and not waits_for_submitter else observation.warnings)


def has_begun(context: Context, attempt: AttemptStatus) -> bool:
    """Whether the driver of this attempt has counted its ranges, in a cluster that no suspension took away since."""
    progress = context.observation.reports.progress
    is_counted = progress is not None and progress.attempt == attempt.number and progress.ranges_total is not None
    return is_counted and attempt.running_time is not None


def was_changed(context: Context, attempt: AttemptStatus) -> bool:
    """Whether its Pods would differ if they were created now."""
    return attempt.spec_digest is not None and attempt.spec_digest != pods_digest(context.observation.job)


def restart_attempt(context: Context, attempt: AttemptStatus, job: Object | None) -> Decision:
    """The job changed before the driver began: begin the next attempt, without counting a failure."""
    reason, words = context.change_message(None if job is None else head_template(job), "the next attempt begins")
    actions = () if job is None or is_leaving(job) else (deletion(Kind.RAY_JOB, job),)
    ended = attempt.model_copy(update={"is_over": True})
    at_once = {"requeue_after_s": AT_ONCE_S} if job is None else {}  # else its deletion brings the next look
    return context.at(Phase.PENDING, reason, words, actions=actions, attempt=ended, workers=None, **at_once)


def head_template(ray_job: Object) -> Object:
    template: Object = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    return template


def memory_words(context: Context) -> str | None:
    """What to do where not even one task of the plan fits a worker."""
    needed, there = task_bytes_of(context), memory_limit(context.job)
    if needed is None or needed <= there:
        return None
    least = -(-(needed + OBJECT_STORE_BYTES) // 2**20)
    return (
        f"a task of this shuffle needs {needed >> 20} MiB of memory, and a worker has {max(0, there) >> 20} MiB for "
        f"tasks: raise the memory in workers.resources to at least {least}Mi. The attempt then begins"
    )


def task_bytes_of(context: Context) -> int | None:
    """What the plan says of a task's memory; None for an ordinary task."""
    return None if context.before.plan is None else context.before.plan.task_bytes


def decide_start(context: Context, active: ActiveAttempt) -> Decision:
    """The next step of an attempt that has not begun."""
    diagnosis = active.diagnosis(context.observation)
    if (
        diagnosis is not None
        and diagnosis.reason is StatusReason.IMAGE_PULL_FAILED
        and context.pulls_otherwise(head_template(active.job))
    ):
        return restart_attempt(context, active.attempt, active.job)  # with the chart's present image and secrets
    failure = _late(context, active, diagnosis)
    if failure is None and diagnosis is not None:
        failure = failure_of_diagnosis(
            diagnosis, context.waited_s(diagnosis.reason), context.observation, active.attempt.number
        )
    if failure is not None:
        return fail(context, failure, **active.changes)
    reason, words = _waiting_words(context, active, diagnosis)
    left_s = _seconds_to_deadline(context, active.attempt) if active.state.stage is Stage.STARTING else None
    waits = context.patience(diagnosis.reason, diagnosis.limit_s) if diagnosis is not None else {}
    silent_s = _seconds_to_silence(context, active)
    due = [each for each in (left_s, waits.pop("requeue_after_s", None), silent_s) if each is not None and each > 0]
    return context.at(Phase.STARTING, reason, words, requeue_after_s=min(due, default=None), **active.changes, **waits)


def _waiting_words(context: Context, active: ActiveAttempt, diagnosis: Diagnosis | None) -> tuple[str, str]:
    """Why the attempt does not run yet: a diagnosis of its Pods, or the missing ones."""
    if not context.observation.has_service_account:
        return StatusReason.NAMESPACE_NOT_PREPARED, context.missing_account_message(active.account)
    name = active.job["metadata"]["name"]
    silent_s = _seconds_to_silence(context, active)
    if silent_s is not None and silent_s <= 0:
        return StatusReason.KUBERAY_SILENT, context.silence_message("has reported no status of", name)
    workers, attempt = active.workers, active.attempt
    began = read_time(_waits_since(attempt)) or context.observation.now
    deadline = began + timedelta(seconds=context.job.spec.startup_deadline_seconds)
    until = time_text(deadline) if diagnosis is None else context.until(deadline, diagnosis.reason, diagnosis.limit_s)
    wanted = attempt.replicas or 1
    least = context.job.spec.workers.min_replicas or wanted
    hint = "; workers.minReplicas would let it begin with fewer" if 1 < wanted <= least else ""
    words = f"{ready_words(workers)}; waits until {until}{hint}"
    if diagnosis is None and workers.ready == workers.desired:
        return StatusReason.WAITING_FOR_DRIVER, f"{ready_words(workers)}; the driver begins"
    if diagnosis is None:
        return StatusReason.WAITING_FOR_WORKERS, words
    are_some_ready = diagnosis.reason is StatusReason.UNSCHEDULABLE and bool(workers.ready)
    return StatusReason.WAITING_FOR_WORKERS if are_some_ready else diagnosis.reason, join(diagnosis.message, words)


def _seconds_to_silence(context: Context, active: ActiveAttempt) -> float | None:
    """Seconds until KubeRay counts as silent; None once it has written a status."""
    if active.state.stage is not Stage.STARTING or active.job.get("status"):
        return None
    # Until KubeRay writes a status, even if another operator's clock differs.
    if context.before.reason == StatusReason.KUBERAY_SILENT:
        return 0.0
    return SILENCE_S - (seconds_since(active.job["metadata"].get("creationTimestamp"), context.observation.now) or 0.0)


def _waits_since(attempt: AttemptStatus) -> str | None:
    """When it was admitted, or, before it has a RayJob, when it began."""
    return attempt.admitted_time or attempt.start_time


def _seconds_to_deadline(context: Context, attempt: AttemptStatus) -> float:
    waited = seconds_since(_waits_since(attempt), context.observation.now) or 0.0
    return context.job.spec.startup_deadline_seconds - waited


def startup_failure(context: Context, attempt: AttemptStatus, state: str) -> Failure | None:
    """The failure of an attempt that has not begun in time; `state`: what was ready."""
    if _seconds_to_deadline(context, attempt) > 0:
        return None
    words = f"ready after {context.job.spec.startup_deadline_seconds} s: {state}"
    return Failure(attempt.number, StatusReason.STARTUP_DEADLINE, words, Blame.INFRASTRUCTURE)


def _late(context: Context, active: ActiveAttempt, diagnosis: Diagnosis | None) -> Failure | None:
    if active.state.stage is not Stage.STARTING:
        return None
    words = share_of_workers(active.workers)
    words = join(words, f"{diagnosis.reason}: {diagnosis.message}") if diagnosis else words
    return startup_failure(context, active.attempt, words)
