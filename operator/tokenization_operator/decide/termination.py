"""How runs and attempts end: committed, failed, suspended; and what is deleted then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenization_operator.decide.actions import Decision, Delete
from tokenization_operator.decide.context import Context
from tokenization_operator.decide.cost import charge
from tokenization_operator.decide.finished import seconds_until_removal
from tokenization_operator.decide.retry_policy import (
    Blame,
    Failure,
    Limits,
    RetryDecision,
    apply_retry_policy,
    remember,
)
from tokenization_operator.decide.status.derived import end_of
from tokenization_operator.decide.status.printer_columns import duration_words, part_of, plan_words
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, has_ended
from tokenization_operator.observe.rayjob_status import Stage, read_ray_job
from tokenization_worker.api.checkpoint import Committed
from tokenization_worker.api.keys import attempt_digest, pods_digest
from tokenization_worker.api.status import AttemptStatus, JobStatus, OutputStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import seconds_since
from tokenization_worker.messages.counts import counted


def committed_of(context: Context) -> Committed | None:
    """The commit, if it belongs to exactly this job and run."""
    found, run = context.observation.reports.committed, context.run
    if found is None or (found.job_uid, found.run, found.run_key) != (context.observation.uid, run.number, run.run_key):
        return None
    return found


def progress_of(context: Context, attempt: AttemptStatus) -> ProgressStatus | None:
    """The progress of the run: as this attempt has reported it, else as before."""
    report = context.observation.reports.progress
    if report is None or report.attempt != attempt.number or report.ranges_total is None:
        return context.before.progress
    return ProgressStatus.model_construct(**{name: getattr(report, name) for name in ProgressStatus.model_fields})


def with_log(context: Context, attempt: AttemptStatus) -> AttemptStatus:
    """The attempt with the log that its driver has named."""
    report = context.observation.reports.progress
    if report is None or report.attempt != attempt.number or report.log_uri is None:
        return attempt
    name, stem = report.log_uri.rpartition("/")[2], f"{context.run.number}-{attempt.number}"
    if not name.startswith(
        (f"{stem}.", f"{stem}-")
    ):  # an older worker does not overwrite an earlier attempt's log address
        return attempt
    return attempt.model_copy(update={"log_uri": report.log_uri})


def succeed(context: Context, committed: Committed) -> Decision:
    """The dataset is committed."""
    plan, attempt = context.observation.reports.plan, context.before.attempt
    already = plan is not None and bool(plan.already_complete) and attempt is None
    progress = context.before.progress if attempt is None else progress_of(context, attempt)
    if progress is not None:
        progress = progress.model_copy(update={"percent": 100})
    return context.at(
        Phase.SUCCEEDED,
        StatusReason.ALREADY_COMPLETE if already else StatusReason.COMMITTED,
        f"{counted(committed.documents or 0, 'document')}, {counted(committed.tokens or 0, 'token')}"
        f"{_spent_words(context)}: {committed.index_uri}",
        run=context.run.model_copy(update={"data_key": committed.data_key}),
        attempt=None if attempt is None else with_log(context, attempt),
        progress=progress,
        failures=None,
        workers=None,
        output=OutputStatus(
            uri=committed.index_uri.rpartition("/")[0],
            index_uri=committed.index_uri,
            index_digest=committed.index_digest,
            digest=committed.digest,
            tokens=committed.tokens,
            fingerprint=committed.fingerprint,
        ),
        requeue_after_s=context.settings.commit_grace_s,
    )


def _spent_words(context: Context) -> str:
    """How long the run took, and what it cost."""
    cost = charge(context)
    took = seconds_since(context.before.start_time or context.run.start_time, context.observation.now)
    words = "" if took is None else f" in {duration_words(took)}"
    return words if cost is None or cost.actual is None else f"{words}, {cost.actual}"


def fail(context: Context, failure: Failure, **changes: Any) -> Decision:
    """Count a failure, then retry later or end the run."""
    spec, settings = context.job.spec, context.settings
    limits = Limits(spec.backoff_limit, spec.infra_retry_limit, settings.retry_delay_s, settings.retry_delay_max_s)
    progress = context.observation.reports.progress
    done = (progress.ranges_completed if progress else None) or 0
    seed = f"{context.observation.uid}/{context.run.number}"
    retry = apply_retry_policy(context.before.failures, failure, done, limits, context.observation.now, seed)
    attempt = changes.pop("attempt", context.before.attempt)
    if attempt is not None:
        fewer = _fewer(context, failure, changes.get("workers"))
        attempt = with_log(context, attempt).model_copy(update={"is_over": True, "next_replicas": fewer})
    run, words = context.run, failure.message
    if not retry.is_over:
        count = _count(failure, retry, limits)
        words = join(words, f"{count}; the next try begins at {retry.failures.next_attempt_time}")
        if failure.attempt == 0:
            run = run.model_copy(update={"plan_job": names.next_plan_job_name(run.plan_job)})
    elif attempt is not None and attempt.spec_digest == pods_digest(context.observation.job):
        # a limit that was changed before has judged this failure: only a later change resumes the run
        run = run.model_copy(update={"spec_digest": attempt_digest(context.observation.job)})
    return context.at(
        Phase.FAILED if retry.is_over else Phase.RETRYING,
        failure.reason,
        words,
        actions=context.deletions(),
        run=run,
        attempt=attempt,
        failures=retry.failures,
        last_failures=remember(context.before.last_failures, failure, context.observation.now),
        requeue_after_s=None if retry.is_over else settings.retry_delay_s,
        **changes | {"workers": None},
    )


def _count(failure: Failure, retry: RetryDecision, limits: Limits) -> str:
    """The number of failures of this kind, of those allowed."""
    counted = retry.failures
    if failure.blame is Blame.APPLICATION:
        return f"Failure {counted.application} of the {limits.application} that backoffLimit allows"
    return f"Failure {counted.infrastructure} of the {limits.infrastructure} that infraRetryLimit allows"


def fail_late(context: Context) -> Decision:
    """The run has used up `activeDeadlineSeconds`."""
    words = f"the run took longer than {context.job.spec.active_deadline_seconds} s"
    number = context.before.attempt.number if context.before.attempt else 0
    return fail(context, Failure(number, StatusReason.DEADLINE_EXCEEDED, words, Blame.FINAL))


def _fewer(context: Context, failure: Failure, workers: WorkersStatus | None) -> int | None:
    """The replicas of the next attempt, if fewer than wanted were ready in time and suffice."""
    least = context.job.spec.workers.min_replicas
    if failure.reason != StatusReason.STARTUP_DEADLINE or least is None or workers is None:
        return None
    ready = (workers.ready or 0) // context.hosts_of_replica
    return ready if ready >= least else None


def suspend(context: Context) -> Decision:
    """Release all machines. Finished work is kept."""
    changes: dict[str, Any] = {"attempt": context.ended_attempt(), "workers": None}
    if context.has_children(but_plan=True) or context.observation.attempt_pods:
        words = f"{_held_words(context)}finished work is kept"
        return context.wait_for_end(StatusReason.SUSPENDING, words, phase=Phase.SUSPENDING, **changes)
    return context.at(
        Phase.SUSPENDED, StatusReason.SUSPENDED, f"spec.suspend is true; {_suspended_words(context)}", **changes
    )


def _held_words(context: Context) -> str:
    """The Pods that still hold machines, if any."""
    held = [pod["metadata"]["name"] for pod in context.observation.attempt_pods]
    match held:
        case []:
            return ""
        case [name]:
            return f"Pod {name} still holds a machine; "
    return f"{len(held)} Pods still hold machines, such as {held[0]}; "


def _suspended_words(context: Context) -> str:
    """What a run would take; once it has begun, how far it is."""
    progress, plan = context.before.progress, context.before.plan
    if progress is not None and progress.ranges_total is not None:
        done = progress.ranges_completed or 0
        words = f"{part_of(done, progress.ranges_total, 'range')} {'is' if done == 1 else 'are'} done and kept"
        return f"{words}; set it to false to continue"
    found = "" if plan is None else f"planned: {plan_words(plan)}; "
    return f"{found}set it to false to begin"


def release(context: Context, finalizers: Sequence[str]) -> Decision:
    """The status of a deleted job that exists until its finalizers are removed; its children are deleted already."""
    until = f"The job was deleted, and exists until its finalizers are removed: {', '.join(finalizers)}"
    changes: dict[str, Any] = {"attempt": context.ended_attempt(), "workers": None}
    if _holds_machines(context):
        words = join(f"{_held_words(context)}the operator releases all machines", until)
        return context.at(Phase.SUSPENDING, StatusReason.SUSPENDING, words, **changes)
    words = join("the operator has released all machines", until)
    return context.at(Phase.SUSPENDED, StatusReason.MACHINES_RETURNED, words, **changes)


def _holds_machines(context: Context) -> bool:
    observation = context.observation
    children = (observation.plan_job, observation.ray_job, *observation.stray_ray_jobs)
    return bool(observation.attempt_pods) or any(each is not None and not has_ended(each) for each in children)


def tidy(context: Context) -> Decision:
    """Delete what a finished job no longer needs: an idle cluster costs money, and its objects cost memory in every
    controller."""
    ray_job, has_failed = context.observation.ray_job, context.before.phase is Phase.FAILED
    wait_s = None if ray_job is None or has_failed else _wait_for_ray_job(context, ray_job)
    leftover = context.deletions() if has_failed or (wait_s is not None and wait_s <= 0) else ()
    if ray_job is not None and leftover:
        wait_s = context.settings.commit_grace_s
    if seconds_to_expiry(context, context.before) == 0.0:
        leftover = (*leftover, Delete(Kind.JOB, context.job.metadata.name, context.observation.uid))
    return Decision(context.before, leftover, wait_s)


def _wait_for_ray_job(context: Context, ray_job: Object) -> float:
    """Seconds until a committed run's RayJob is deleted: soon if it still works, after the retention if it has
    ended."""
    since_end_s = _seconds_since_end(context, context.before) or 0.0
    if read_ray_job(ray_job).stage not in (Stage.ENDED, Stage.FAILED):
        return context.settings.commit_grace_s - since_end_s
    retention_s = context.settings.ray_job_retention_s
    left_s = seconds_until_removal(ray_job, retention_s, context.observation.now)
    return retention_s - since_end_s if left_s is None else left_s


def seconds_to_expiry(context: Context, status: JobStatus) -> float | None:
    """Seconds until a job that ended with this status is deleted; None for never, or if a GitOps tool would recreate
    it."""
    ttl, since = context.job.spec.ttl_seconds_after_finished, _seconds_since_end(context, status)
    if ttl is None or since is None or context.observation.managed_by:
        return None
    return max(0.0, ttl - since)


def _seconds_since_end(context: Context, status: JobStatus) -> float | None:
    return seconds_since(end_of(status), context.observation.now)
