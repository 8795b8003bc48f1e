"""The attempts of a planned run: one RayJob each, made, followed and given up. Decides; does no I/O."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tokenization_operator import names
from tokenization_operator.actions import Action, Create, Decision, deletion
from tokenization_operator.case import AT_ONCE_S, Case
from tokenization_operator.children import Attempt, build_ray_job
from tokenization_operator.cost import machines_of
from tokenization_operator.display import part_of, ready_words, share_of_workers
from tokenization_operator.ending import fail, progress_of, with_log
from tokenization_operator.failures import Blame, Failure
from tokenization_operator.kinds import Kind
from tokenization_operator.observation import KubeRay, Object
from tokenization_operator.outcome import failure_of_ray_job
from tokenization_operator.pending import pending_changes
from tokenization_operator.pod_trouble import Trouble, find_trouble
from tokenization_operator.ray_state import RayState, Stage, cluster_name, count_ready_workers, find_head, read_ray_job
from tokenization_worker.api.checkpoint import report_interval_s
from tokenization_worker.api.keys import attempt_digest
from tokenization_worker.api.status import AttemptStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.times import read_time, seconds_since, time_text

FINISHING = "Finishing"
"""The driver has ended, and its commit is awaited."""

_CHANGED = (
    ". The job has changed since: this attempt goes on as it was; suspend and resume the job to begin the next now"
)


def decide_attempt(case: Case) -> Decision:
    """The next step of a run that is planned and may use machines."""
    attempt = case.before.attempt
    if attempt is None or attempt.is_over:
        return _begin_attempt(case)
    job = case.seen.ray_job
    if job is not None:
        return _follow(case, attempt, job)
    if attempt.ray_job_name is None:
        if case.seen.kuberay is not KubeRay.THERE:
            return _without_kuberay(case)
        return _too_late(case, attempt, f"no RayJob. {case.before.message}") or _make_ray_job(case, attempt)
    words = f"RayJob {attempt.ray_job_name} was deleted"
    return fail(case, Failure(attempt.number, "RayJobGone", words, Blame.INFRASTRUCTURE))


def _begin_attempt(case: Case) -> Decision:
    """The first step of an attempt: its number in the status."""
    if case.has_children(but_plan=True):
        before = case.before  # why the last one ended stays in sight
        return case.wait_for_end(before.reason or "Retrying", before.message or "what is left of it goes first")
    if (pause := case.pause()) is not None:
        return pause
    if case.seen.kuberay is not KubeRay.THERE:
        return _without_kuberay(case)
    if not case.seen.has_service_account:
        return case.not_prepared(Phase.STARTING)
    last = case.before.attempt
    new = AttemptStatus(
        number=(last.number if last else 0) + 1,
        start_time=time_text(case.seen.now),
        replicas=(last.next_replicas if last else None) or case.job.spec.workers.replicas,
        image=case.image.name,
    )
    new = new.model_copy(update={"machines": machines_of(case.job, new.replicas or 1)})
    run = case.run.model_copy(update={"spec_digest": attempt_digest(case.seen.job)})
    words = f"attempt {new.number} begins"
    return case.at(Phase.STARTING, "AttemptStarted", words, attempt=new, run=run, again_s=AT_ONCE_S)


def _without_kuberay(case: Case) -> Decision:
    if case.seen.kuberay is KubeRay.MISSING:
        words = "the cluster does not serve RayJobs: install KubeRay 1.6 or newer"
        return case.at(Phase.PENDING, "KubeRayUnavailable", words)
    return case.at(
        Phase.PENDING,
        "KubeRayTooOld",
        "KubeRay's RayJobs have no authOptions, so its dashboards would be open to all: upgrade its "
        "CustomResourceDefinitions to 1.6 or newer",
    )


def _make_ray_job(case: Case, attempt: AttemptStatus) -> Decision:
    made = _made(case, attempt)
    body = build_ray_job(case.job, case.seen.uid, made, case.run.ray_version, case.settings)
    words = f"RayJob {body['metadata']['name']}"
    return case.making(Phase.STARTING, "ClusterRequested", words, case.point(made, None), Create(Kind.RAY_JOB, body))


def _made(case: Case, attempt: AttemptStatus) -> Attempt:
    return Attempt(case.run.number, attempt.number, case.image, attempt.replicas or 1)


def _follow(case: Case, attempt: AttemptStatus, job: Object) -> Decision:
    """An attempt whose RayJob is there: what became of it."""
    state = read_ray_job(job)
    cluster = cluster_name(job)
    changes_of_attempt: dict[str, Any] = {"ray_job_name": job["metadata"]["name"], "ray_cluster_name": cluster}
    if attempt.head_pod is None and state.stage is Stage.RUNNING and (head := find_head(case.seen.pods)) is not None:
        changes_of_attempt["head_pod"] = head["metadata"]["name"]
    changes_of_attempt["pending_changes"] = pending_changes(case, attempt)
    attempt = with_log(case, attempt.model_copy(update=changes_of_attempt | _clocks(case, attempt, state.stage)))
    progress = progress_of(case, attempt)
    desired = (attempt.replicas or 1) * case.hosts_of_replica
    workers = WorkersStatus(desired=desired, ready=count_ready_workers(case.seen.pods))
    changes: dict[str, Any] = {"attempt": attempt, "workers": workers, "progress": progress}
    trouble = find_trouble(case.seen.pods, case.seen.warnings)
    failure = failure_of_ray_job(state, attempt, case.seen, case.settings.commit_grace_s)
    failure = failure or _lateness(case, state, attempt, workers, progress, trouble)
    if failure is not None:
        return fail(case, failure, **changes)
    if state.stage is Stage.QUEUED:
        return case.queued(**changes)
    if state.stage is Stage.ENDED:
        return case.at(Phase.RUNNING, FINISHING, "the driver has ended; its last word is awaited", **changes)
    actions = () if cluster is None else _name_writer(case, attempt, job, cluster)
    if _has_begun(case, attempt):
        assert progress is not None
        reason, words = "Running", part_of(progress.ranges_completed or 0, progress.ranges_total or 0, "range")
        if trouble is not None and trouble.reason == "WorkerMemory":
            reason, words = trouble.reason, f"{words}. {trouble.message}"
        if attempt.pending_changes is not None:
            words += f"; {attempt.pending_changes}"
        return case.at(Phase.RUNNING, reason, words, actions=actions, **changes)
    if trouble is not None and trouble.reason == "ImagePullFailed" and case.pulls_otherwise(_head_of(job)):
        return _replace_image(case, attempt, job, changes)
    reason, words = _waiting_words(case, workers, attempt, trouble)
    return case.at(Phase.STARTING, reason, words, actions=actions, **changes)


def _clocks(case: Case, attempt: AttemptStatus, stage: Stage) -> dict[str, str | None]:
    """Since when the attempt may have machines, and since when its driver works."""
    now = time_text(case.seen.now)
    if stage is Stage.QUEUED:
        return {"admitted_time": None, "running_time": None}
    running = now if stage is Stage.RUNNING else None
    return {"admitted_time": attempt.admitted_time or now, "running_time": attempt.running_time or running}


def _has_begun(case: Case, attempt: AttemptStatus) -> bool:
    """Whether the driver of this attempt has counted its ranges."""
    progress = case.seen.reports.progress
    return progress is not None and progress.attempt == attempt.number and progress.ranges_total is not None


def _name_writer(case: Case, attempt: AttemptStatus, job: Object, cluster: str) -> tuple[Action, ...]:
    """Name the head Pod as the one that may report, if that is not done yet."""
    prefix = names.head_pod_prefix(cluster)
    spec = (case.seen.checkpoint or {}).get("spec") or {}
    if spec.get("writerPodPrefix") == prefix:
        return ()
    account = _head_of(job)["spec"]["serviceAccountName"]  # the job may name another one by now
    made = _made(case, attempt)
    return (case.point(replace(made, image=replace(made.image, service_account=account)), prefix),)


def _head_of(ray_job: Object) -> Object:
    template: Object = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    return template


def _replace_image(case: Case, attempt: AttemptStatus, job: Object, changes: dict[str, Any]) -> Decision:
    """An image that could not be pulled was corrected: the next attempt, which is no failure."""
    ended = attempt.model_copy(update={"is_over": True})
    return case.at(
        Phase.PENDING,
        "ImageChanged",
        f"the next attempt uses {case.image.name}",
        actions=(deletion(Kind.RAY_JOB, job),),
        **changes | {"attempt": ended, "workers": None},
    )


def _waiting_words(
    case: Case, workers: WorkersStatus, attempt: AttemptStatus, trouble: Trouble | None
) -> tuple[str, str]:
    """Why the attempt does not run yet: what keeps its Pods from it, or that some of them are not there yet."""
    began = read_time(_waits_since(attempt)) or case.seen.now
    changed = _CHANGED if attempt_digest(case.seen.job) != case.run.spec_digest else ""
    until = time_text(began + timedelta(seconds=case.job.spec.startup_deadline_seconds))
    wanted = attempt.replicas or 1
    least = case.job.spec.workers.min_replicas or wanted
    hint = "; workers.minReplicas would let it begin with fewer" if 1 < wanted <= least else ""
    words = f"{ready_words(workers)}; waits until {until}{hint}{changed}"
    if trouble is None and workers.ready == workers.desired:
        return "WaitingForDriver", f"{ready_words(workers)}; the driver begins"
    if trouble is None:
        return "WaitingForWorkers", words
    are_some_there = trouble.reason == "Unschedulable" and bool(workers.ready)
    return "WaitingForWorkers" if are_some_there else trouble.reason, f"{trouble.message}. {words}"


def _waits_since(attempt: AttemptStatus) -> str | None:
    """Since when it may have machines; before there is a RayJob, since it began."""
    return attempt.admitted_time or attempt.start_time


def _too_late(case: Case, attempt: AttemptStatus, there: str) -> Decision | None:
    failure = _startup_failure(case, attempt, there)
    return None if failure is None else fail(case, failure)


def _startup_failure(case: Case, attempt: AttemptStatus, there: str) -> Failure | None:
    """Of an attempt that has not begun in time; `there`: what was there."""
    limit = case.job.spec.startup_deadline_seconds
    if (seconds_since(_waits_since(attempt), case.seen.now) or 0.0) <= limit:
        return None
    words = f"ready after {limit} s: {there}"
    return Failure(attempt.number, "StartupDeadline", words, Blame.INFRASTRUCTURE)


def _lateness(
    case: Case,
    state: RayState,
    attempt: AttemptStatus,
    workers: WorkersStatus,
    progress: ProgressStatus | None,
    trouble: Trouble | None,
) -> Failure | None:
    if state.stage is Stage.STARTING:
        words = share_of_workers(workers)
        return _startup_failure(case, attempt, f"{words}. {trouble.reason}: {trouble.message}" if trouble else words)
    if state.stage is not Stage.RUNNING:
        return None
    spec, now = case.job.spec, case.seen.now
    lasted = seconds_since(attempt.running_time, now) or 0.0
    last = progress.last_range_time if progress else None
    since_last = seconds_since(last, now)
    still = lasted if since_last is None else min(lasted, since_last)
    if still <= spec.stall_timeout_seconds + report_interval_s(lasted):  # of what is done it is told that much later
        return None
    known = f"the last one was done at {last}" if last else f"none since the driver began at {attempt.running_time}"
    words = f"no new range for {spec.stall_timeout_seconds} s; {known}"
    return Failure(attempt.number, "Stalled", words, Blame.INFRASTRUCTURE)
