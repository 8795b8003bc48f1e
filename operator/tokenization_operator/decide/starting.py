"""An attempt whose driver has not counted its ranges yet: what it waits for, and how long. Decides; does no I/O.

Until then nothing is lost with it: a job that is changed has its next attempt at once, and what cannot start gives its
machines back after minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tokenization_operator.decide.actions import Decision, deletion
from tokenization_operator.decide.context import NOT_PREPARED, Case
from tokenization_operator.decide.failure import failure_of_trouble
from tokenization_operator.decide.retry_policy import Blame, Failure
from tokenization_operator.decide.status.printer_columns import ready_words, share_of_workers
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, is_leaving, node_type
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import Trouble, find_trouble
from tokenization_operator.observe.rayjob_status import RayState, Stage
from tokenization_worker.api.keys import pods_digest
from tokenization_worker.api.status import AttemptStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.times import read_time, seconds_since, time_text

SILENCE_S = 60.0
"""KubeRay writes a RayJob's first status within a second of its creation, and of thousands within a minute."""

_SILENT = "KubeRaySilent"


@dataclass(frozen=True, slots=True)
class Attended:
    """An attempt as it is now, whose RayJob is there."""

    attempt: AttemptStatus
    job: Object
    state: RayState
    workers: WorkersStatus
    progress: ProgressStatus | None

    @property
    def changes(self) -> dict[str, Any]:
        """Of the job's status."""
        return {"attempt": self.attempt, "workers": self.workers, "progress": self.progress}

    @property
    def account(self) -> str:
        """The ServiceAccount of its Pods; the job may name another one by now."""
        return str(head_template(self.job)["spec"]["serviceAccountName"])

    def trouble(self, seen: Observation) -> Trouble | None:
        """What keeps its Pods from running. Warnings of Pods that could not be made are past when all are there."""
        kinds = [node_type(pod) for pod in seen.pods]
        has_all = "head" in kinds and kinds.count("worker") >= (self.workers.desired or 0)
        waits_for_submitter = self.workers.ready == self.workers.desired and "" not in kinds
        return find_trouble(seen.pods, () if has_all and not waits_for_submitter else seen.warnings)


def has_begun(case: Case, attempt: AttemptStatus) -> bool:
    """Whether the driver of this attempt has counted its ranges."""
    progress = case.seen.reports.progress
    return progress is not None and progress.attempt == attempt.number and progress.ranges_total is not None


def was_changed(case: Case, attempt: AttemptStatus) -> bool:
    """Whether its Pods would be others if it began now."""
    return attempt.spec_digest is not None and attempt.spec_digest != pods_digest(case.seen.job)


def begin_anew(case: Case, attempt: AttemptStatus, job: Object | None) -> Decision:
    """The job was changed before the driver began: the next attempt, which is no failure."""
    reason, words = case.words_of_change(None if job is None else head_template(job), "the next attempt begins")
    actions = () if job is None or is_leaving(job) else (deletion(Kind.RAY_JOB, job),)
    ended = attempt.model_copy(update={"is_over": True})
    return case.at(Phase.PENDING, reason, words, actions=actions, attempt=ended, workers=None)


def head_template(ray_job: Object) -> Object:
    template: Object = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    return template


def decide_start(case: Case, now: Attended) -> Decision:
    """The next step of an attempt that has not begun."""
    trouble = now.trouble(case.seen)
    if trouble is not None and trouble.reason == "ImagePullFailed" and case.pulls_otherwise(head_template(now.job)):
        return begin_anew(case, now.attempt, now.job)  # with what the chart says now
    failure = _late(case, now, trouble)
    if failure is None and trouble is not None:
        failure = failure_of_trouble(trouble, case.waited_s(trouble.reason), case.seen, now.attempt.number)
    if failure is not None:
        return fail(case, failure, **now.changes)
    reason, words = _waiting_words(case, now, trouble)
    left_s = _seconds_to_deadline(case, now.attempt) if now.state.stage is Stage.STARTING else None
    waits = case.patience(trouble.reason, trouble.limit_s) if trouble is not None else {}
    silent_s = _seconds_to_silence(case, now)
    due = [each for each in (left_s, waits.pop("again_s", None), silent_s) if each is not None and each > 0]
    return case.at(Phase.STARTING, reason, words, again_s=min(due, default=None), **now.changes, **waits)


def _waiting_words(case: Case, now: Attended, trouble: Trouble | None) -> tuple[str, str]:
    """Why the attempt does not run yet: what keeps its Pods from it, or that some of them are not there yet."""
    if not case.seen.has_service_account:
        return NOT_PREPARED, case.missing_account_words(now.account)
    name = now.job["metadata"]["name"]
    silent_s = _seconds_to_silence(case, now)
    if silent_s is not None and silent_s <= 0:
        return (
            _SILENT,
            f"KubeRay has said nothing of RayJob {name} for {SILENCE_S:.0f} s. Look whether its operator runs, and "
            "whether it watches this namespace: kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator",
        )
    workers, attempt = now.workers, now.attempt
    began = read_time(_waits_since(attempt)) or case.seen.now
    deadline = began + timedelta(seconds=case.job.spec.startup_deadline_seconds)
    until = time_text(deadline) if trouble is None else case.until(deadline, trouble.reason, trouble.limit_s)
    wanted = attempt.replicas or 1
    least = case.job.spec.workers.min_replicas or wanted
    hint = "; workers.minReplicas would let it begin with fewer" if 1 < wanted <= least else ""
    words = f"{ready_words(workers)}; waits until {until}{hint}"
    if trouble is None and workers.ready == workers.desired:
        return "WaitingForDriver", f"{ready_words(workers)}; the driver begins"
    if trouble is None:
        return "WaitingForWorkers", words
    are_some_there = trouble.reason == "Unschedulable" and bool(workers.ready)
    return "WaitingForWorkers" if are_some_there else trouble.reason, join(trouble.message, words)


def _seconds_to_silence(case: Case, now: Attended) -> float | None:
    """Until KubeRay has said nothing for too long; None once it has spoken."""
    if now.state.stage is not Stage.STARTING or now.job.get("status"):
        return None
    if case.before.reason == _SILENT:  # until KubeRay speaks, whatever another operator's clock says
        return 0.0
    return SILENCE_S - (seconds_since(now.job["metadata"].get("creationTimestamp"), case.seen.now) or 0.0)


def _waits_since(attempt: AttemptStatus) -> str | None:
    """Since when it may have machines; before there is a RayJob, since it began."""
    return attempt.admitted_time or attempt.start_time


def _seconds_to_deadline(case: Case, attempt: AttemptStatus) -> float:
    waited = seconds_since(_waits_since(attempt), case.seen.now) or 0.0
    return case.job.spec.startup_deadline_seconds - waited


def startup_failure(case: Case, attempt: AttemptStatus, there: str) -> Failure | None:
    """Of an attempt that has not begun in time; `there`: what was there."""
    if _seconds_to_deadline(case, attempt) > 0:
        return None
    words = f"ready after {case.job.spec.startup_deadline_seconds} s: {there}"
    return Failure(attempt.number, "StartupDeadline", words, Blame.INFRASTRUCTURE)


def _late(case: Case, now: Attended, trouble: Trouble | None) -> Failure | None:
    if now.state.stage is not Stage.STARTING:
        return None
    words = share_of_workers(now.workers)
    words = join(words, f"{trouble.reason}: {trouble.message}") if trouble else words
    return startup_failure(case, now.attempt, words)
