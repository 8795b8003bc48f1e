"""When a run begins, and when a failed run resumes. Pure."""

from __future__ import annotations

from datetime import datetime

from tokenization_operator.decide.actions import Decision
from tokenization_operator.decide.context import AT_ONCE_S, Context
from tokenization_operator.decide.status.derived import output_of
from tokenization_operator.objects import names
from tokenization_worker.api.keys import attempt_digest, run_key
from tokenization_worker.api.status import JobStatus, Phase, RunStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import seconds_since, time_text

_CLOCK_S = 1.0
"""How far the operator's estimate of the API server's time may be off."""


def number_of_new_run(context: Context) -> int | None:
    """The number of the run that must begin; None if the current run continues."""
    run = context.before.run
    if run is None:
        return 1
    token = context.observation.job.spec.rerun_token
    if token is not None and token != run.rerun_token:
        return run.number + 1
    if context.before.plan is None and run_key(context.job) != run.run_key:
        return run.number + 1  # the user corrected the job before it was planned
    if _is_of_other_data(context):
        return run.number + 1
    return None


def _is_of_other_data(context: Context) -> bool:
    """Whether the checkpoint with this run's name belongs to an earlier run that a wiped status no longer mentions.

    A checkpoint's run never changes, so Pods that read it would process the other run's data.
    """
    checkpoint = context.observation.checkpoint
    return checkpoint is not None and bool(checkpoint["spec"]["run"]["runKey"] != context.run.run_key)


def begin_run(context: Context, number: int) -> Decision:
    """The first step of a run: write its name to the status. Its children follow with the next reconcile."""
    if context.before.run is not None and context.has_children():
        if context.before.phase in (
            Phase.SUCCEEDED,
            Phase.FAILED,
        ):  # tools would mistake the old phase for the new run's end
            return Decision(context.before, context.deletions(), is_observed=False)
        words = f"run {number} begins when the objects of run {context.before.run.number} are deleted"
        return context.wait_for_end(StatusReason.RERUN, words, attempt=context.ended_attempt())
    job = context.observation.job
    run = RunStatus(
        number=number,
        rerun_token=job.spec.rerun_token,
        run_key=run_key(job),
        image=context.settings.image,
        checkpoint=names.checkpoint_name(job.metadata.name, number),
        plan_job=names.plan_job_name(job.metadata.name, number, 1),
        start_time=_start_of_run(context),
        spec_digest=attempt_digest(job),
    )
    status = JobStatus(
        phase=Phase.PENDING,
        reason=StatusReason.RUN_STARTED,
        message=f"run {number} begins",
        start_time=run.start_time,
        run=run,
        output=output_of(job, run.rerun_token),
    )
    return Decision(status, requeue_after_s=AT_ONCE_S)


def _start_of_run(context: Context) -> str:
    """Now, but not before the job: the operator's estimate of the API server's time may be a second behind."""
    since_creation_s = seconds_since(context.observation.created, context.observation.now)
    is_early = since_creation_s is not None and -_CLOCK_S <= since_creation_s < 0
    return context.observation.created if is_early else time_text(context.observation.now)


def resume_failed(context: Context) -> Decision:
    """Resume the same run, with its failure counts reset."""
    changes: dict[str, object] = {"spec_digest": attempt_digest(context.observation.job)}
    if context.before.plan is None:
        changes["plan_job"] = names.next_plan_job_name(context.run.plan_job)
    run = context.run.model_copy(update=changes)
    words = "the job was changed: the run continues"
    return context.at(Phase.PENDING, StatusReason.RESUMED, words, run=run, failures=None, requeue_after_s=AT_ONCE_S)


_WITHOUT_MACHINES = (Phase.QUEUED, Phase.SUSPENDING, Phase.SUSPENDED)
"""Phases in which a run waits for a queue or its user; that time does not count for its deadline."""


def restart_run_clock(before: JobStatus, after: JobStatus, now: datetime) -> JobStatus:
    """Restart the run's clock when the run resumes after a wait in a queue or a suspension."""
    if before.phase not in _WITHOUT_MACHINES or after.phase in (*_WITHOUT_MACHINES, Phase.SUCCEEDED, Phase.FAILED):
        return after
    run = after.run and after.run.model_copy(update={"start_time": time_text(now)})
    return after.model_copy(update={"run": run})


def is_too_long(context: Context) -> bool:
    """Whether the run has used up `activeDeadlineSeconds`."""
    limit = context.job.spec.active_deadline_seconds
    if context.before.phase in _WITHOUT_MACHINES:
        return False
    lasted = seconds_since(context.run.start_time, context.observation.now)
    return limit is not None and lasted is not None and lasted >= limit


def seconds_to_deadline(context: Context, status: JobStatus) -> float | None:
    """Seconds until a run with this status reaches `activeDeadlineSeconds`; None if it has no deadline or is past
    it."""
    limit = context.job.spec.active_deadline_seconds
    if limit is None or status.run is None or status.phase in (*_WITHOUT_MACHINES, Phase.SUCCEEDED, Phase.FAILED):
        return None
    left = limit - (seconds_since(status.run.start_time, context.observation.now) or 0.0)
    return left if left > 0 else None
