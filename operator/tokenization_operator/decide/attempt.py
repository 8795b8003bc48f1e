"""The attempts of a planned run: one RayJob each, made, followed and given up. Decides; does no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokenization_operator.build.children import Attempt, build_ray_job
from tokenization_operator.decide.actions import Action, Create, Decision
from tokenization_operator.decide.context import AT_ONCE_S, FINISHING, NOT_PREPARED, Case
from tokenization_operator.decide.failure import failure_of_ray_job
from tokenization_operator.decide.pending import pending_changes
from tokenization_operator.decide.retry_policy import Blame, Failure
from tokenization_operator.decide.starting import (
    Attended,
    begin_anew,
    decide_start,
    has_begun,
    startup_failure,
    was_changed,
)
from tokenization_operator.decide.status.cost import machines_of
from tokenization_operator.decide.status.printer_columns import part_of
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail, progress_of, with_log
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object
from tokenization_operator.observe.observation import KubeRay
from tokenization_operator.observe.rayjob_status import (
    Stage,
    cluster_name,
    count_ready_workers,
    find_head,
    read_ray_job,
)
from tokenization_worker.api.checkpoint import report_interval_s
from tokenization_worker.api.keys import attempt_digest, pods_digest
from tokenization_worker.api.status import AttemptStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.times import seconds_since, time_text

TOKEN_S = 3600.0
"""Within that time the kubelet renews the token of a Pod: it does so after 80 % of its hour."""


def decide_attempt(case: Case) -> Decision:
    """The next step of a run that is planned and may use machines."""
    attempt = case.before.attempt
    if attempt is None or attempt.is_over:
        return _begin_attempt(case)
    job = case.seen.ray_job
    if job is not None:
        return _follow(case, attempt, job)
    if case.seen.kuberay is not KubeRay.THERE:  # with its kinds, RayJobs are gone, too
        return _without_kuberay(case)
    if attempt.ray_job_name is None:
        if was_changed(case, attempt):
            return begin_anew(case, attempt, None)
        there = f"no RayJob. {case.before.message}"
        return _too_late(case, attempt, there) or _make_ray_job(case, attempt)
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
        spec_digest=pods_digest(case.seen.job),
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
    changes: dict[str, Any] = {"ray_job_name": job["metadata"]["name"], "ray_cluster_name": cluster_name(job)}
    if attempt.head_pod is None and state.stage is Stage.RUNNING and (head := find_head(case.seen.pods)) is not None:
        changes["head_pod"] = head["metadata"]["name"]
    if case.is_account_back:
        changes["account_time"] = time_text(case.seen.now)
    changes["pending_changes"] = pending_changes(case, attempt)
    progress = progress_of(case, attempt)
    clocks = _clocks(case, attempt, state.stage, progress)
    attempt = with_log(case, attempt.model_copy(update=changes | clocks))
    desired = (attempt.replicas or 1) * case.hosts_of_replica
    workers = WorkersStatus(desired=desired, ready=count_ready_workers(case.seen.pods))
    now = Attended(attempt, job, state, workers, progress)
    grace_s = case.settings.commit_grace_s
    failure = failure_of_ray_job(state, attempt, case.seen, case.waited_s(FINISHING), grace_s)
    if failure is not None:
        return fail(case, failure, **now.changes)
    if not has_begun(case, attempt) and was_changed(case, attempt):
        return begin_anew(case, attempt, job)
    if state.stage is Stage.QUEUED:
        return case.queued(**now.changes)
    if state.stage is Stage.ENDED:
        words = "the driver has ended; its last word is awaited"
        return case.at(Phase.RUNNING, FINISHING, words, **now.changes, **case.patience(FINISHING, grace_s))
    return _attend(case, now)


def _attend(case: Case, now: Attended) -> Decision:
    """An attempt that has machines, or waits for them."""
    left_s = seconds_to_stall(case, now) if now.state.stage is Stage.RUNNING else None
    if left_s is not None and left_s <= 0:
        return fail(case, _stalled(case, now), **now.changes)
    decision = _running(case, now) if has_begun(case, now.attempt) else decide_start(case, now)
    if decision.status.attempt is None or decision.status.attempt.is_over:
        return decision
    due = [each for each in (decision.look_again_s, left_s) if each is not None]
    return replace(decision, actions=_name_writer(case, now), look_again_s=min(due, default=None))


def _running(case: Case, now: Attended) -> Decision:
    """An attempt whose driver works."""
    progress = now.progress
    done, total = (progress.ranges_completed, progress.ranges_total) if progress else (None, None)
    reason, words = "Running", part_of(done or 0, total or 0, "range")
    trouble = now.trouble(case.seen)
    if not case.seen.has_service_account:
        reason, words = NOT_PREPARED, f"{words}, as last reported. {case.missing_account_words(now.account)}"
    elif trouble is not None and trouble.reason == "WorkerMemory":
        reason, words = trouble.reason, join(words, trouble.message)
    if now.attempt.pending_changes is not None:
        words += f"; {now.attempt.pending_changes}"
    return case.at(Phase.RUNNING, reason, words, **now.changes)


def _clocks(case: Case, attempt: AttemptStatus, stage: Stage, progress: ProgressStatus | None) -> dict[str, str | None]:
    """Since when the attempt may have machines, since when its driver works, and when that was last seen to get on."""
    now = time_text(case.seen.now)
    if stage is Stage.QUEUED:
        return {"admitted_time": None, "running_time": None, "progress_time": None}
    running = attempt.running_time or (now if stage is Stage.RUNNING else None)
    # It counts from the driver's start. Of one that another version of the operator has followed, it counts from now.
    still = attempt.progress_time or (now if running else None)
    return {
        "admitted_time": attempt.admitted_time or now,
        "running_time": running,
        "progress_time": now if _gets_on(case, progress) else still,
    }


def _gets_on(case: Case, progress: ProgressStatus | None) -> bool:
    """Whether the driver has told of something new. Its times are only compared with each other: the clock of its node
    may be hours off. A driver that could not report, because its ServiceAccount was gone, has its time once more."""
    if case.is_account_back:
        return True
    before = case.before.progress or ProgressStatus()
    if progress is None or progress is case.before.progress:
        return False
    counts = [(each.ranges_completed or 0, each.shards_built or 0) for each in (before, progress)]
    return counts[0] != counts[1] or progress.last_range_time not in (None, before.last_range_time)


def _name_writer(case: Case, now: Attended) -> tuple[Action, ...]:
    """Name the head Pod as the one that may report, if that is not done yet."""
    cluster = now.attempt.ray_cluster_name
    if cluster is None:
        return ()
    prefix = names.head_pod_prefix(cluster)
    spec = (case.seen.checkpoint or {}).get("spec") or {}
    if spec.get("writerPodPrefix") == prefix:
        return ()
    made = _made(case, now.attempt)
    return (case.point(replace(made, image=replace(made.image, service_account=now.account)), prefix),)


def seconds_to_stall(case: Case, now: Attended) -> float | None:
    """Until a driver that tells of nothing new is taken for one that hangs; None while it cannot report at all.

    Where its account was gone, the tokens of before are invalid until the kubelet renews them.
    """
    if not case.seen.has_service_account:
        return None
    lasted = seconds_since(now.attempt.running_time, case.seen.now) or 0.0
    since_last = seconds_since(now.attempt.progress_time, case.seen.now)
    still = lasted if since_last is None else min(lasted, since_last)
    late = report_interval_s(lasted)  # of what is done it is told that much later
    left_s = case.job.spec.stall_timeout_seconds + late - still
    since_return = seconds_since(now.attempt.account_time, case.seen.now)
    if since_return is None or (since_last is not None and since_last < since_return):  # a report since: it has a token
        return left_s
    return max(left_s, TOKEN_S - since_return)


def _stalled(case: Case, now: Attended) -> Failure:
    last, began = now.attempt.progress_time, now.attempt.running_time
    known = f"none since the driver began at {began}" if last in (None, began) else f"the last was reported at {last}"
    words = f"no new range for {case.job.spec.stall_timeout_seconds} s; {known}"
    return Failure(now.attempt.number, "Stalled", words, Blame.INFRASTRUCTURE)


def _too_late(case: Case, attempt: AttemptStatus, there: str) -> Decision | None:
    failure = startup_failure(case, attempt, there)
    return None if failure is None else fail(case, failure)
