"""Decides the next step of a job from its observation. Pure. `_next_step` is the table of contents.

Level-triggered: the job's own status is the only memory, and equal observations give equal decisions. A step that
creates a child first writes a status that names it; after a crash in between, the next reconcile reads the status and
creates the child. So an attempt has one RayJob, however many operators reconcile it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenization_operator.decide.actions import Decision, Delete, deletion
from tokenization_operator.decide.attempt import decide_attempt
from tokenization_operator.decide.context import Context
from tokenization_operator.decide.cost import settle
from tokenization_operator.decide.plan import decide_plan
from tokenization_operator.decide.run import (
    begin_run,
    is_too_long,
    number_of_new_run,
    restart_run_clock,
    resume_failed,
    seconds_to_deadline,
)
from tokenization_operator.decide.status.conditions import make_conditions
from tokenization_operator.decide.status.derived import ENDED, derive
from tokenization_operator.decide.status.truncate import shorten
from tokenization_operator.decide.termination import (
    committed_of,
    fail_late,
    release,
    seconds_to_expiry,
    succeed,
    suspend,
    tidy,
)
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import QUEUE_LABEL
from tokenization_operator.objects.reading import is_leaving, label
from tokenization_operator.observe.observation import Observation
from tokenization_operator.settings import Settings
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.reasons import StatusReason

_UNACCEPTED = (StatusReason.KUBERAY_UNAVAILABLE, StatusReason.KUBERAY_TOO_OLD)
_COMING = (Phase.PENDING, Phase.PLANNING, Phase.STARTING)
SOON_S = 20.0
"""The interval while the job awaits something that no watch reports: events about Pods, a ServiceAccount, the end of a
grace period."""


def decide(observation: Observation, settings: Settings) -> Decision:
    """The next step of one job."""
    context = Context(observation, settings)
    decision = _next_step(context)
    strays = tuple(deletion(Kind.RAY_JOB, each) for each in observation.stray_ray_jobs if not is_leaving(each))
    if not decision.is_observed:
        return Decision(observation.status, (*strays, *decision.actions), SOON_S)
    decision = _with_wait(observation, decision)
    status = settle(context, restart_run_clock(observation.status, decision.status, observation.now))
    status = _complete(observation, status)
    soon_s = SOON_S if status.phase in _COMING or status.reason == StatusReason.FINISHING else None
    due = [decision.requeue_after_s, soon_s, seconds_to_deadline(context, status)]
    if not any(isinstance(each, Delete) and each.kind is Kind.JOB for each in decision.actions):
        due.append(seconds_to_expiry(context, status))
    return Decision(status, (*strays, *decision.actions), min((each for each in due if each is not None), default=None))


def _with_wait(observation: Observation, decision: Decision) -> Decision:
    """Keep the current wait if events could not be read: they would show whether it is over."""
    before, status = observation.status.wait, decision.status
    if observation.warnings_known or before is None or status.phase is not observation.status.phase:
        return decision
    if any(isinstance(each, Delete) for each in decision.actions):  # the waiting child is deleted
        return decision
    if status.wait is not None and status.wait.reason != before.reason:
        return decision
    return replace(decision, status=status.model_copy(update={"wait": before}))


def not_made(observation: Observation, status: JobStatus, reason: str, words: str) -> JobStatus:
    """The status of a job whose child could not be created; `reason` is one of `NOT_MADE`."""
    return _complete(observation, status.model_copy(update={"reason": reason, "message": shorten(words)}))


def released(observation: Observation, settings: Settings, finalizers: Sequence[str]) -> JobStatus | None:
    """The status of a deleted job that finalizers keep; None for a finished one, whose status stays true."""
    if observation.status.phase in ENDED:
        return None
    context = Context(observation, settings)
    return _complete(observation, settle(context, release(context, finalizers).status))


def _complete(observation: Observation, status: JobStatus) -> JobStatus:
    """Add the fields that follow from the rest of the status."""
    if status is observation.status and status.phase in ENDED and status.observed_generation == observation.generation:
        return status  # an operator upgrade does not rewrite finished jobs
    shown = derive(observation, status)
    obstacle = status.reason or "" if status.phase is Phase.PENDING and status.reason in _UNACCEPTED else ""
    conditions = make_conditions(
        shown,
        observation.status.conditions or (),
        observation.generation,
        observation.now,
        obstacle=obstacle,
        in_queue=_is_queued_by_kueue(observation),
    )
    return shown.model_copy(update={"conditions": conditions})


def _is_queued_by_kueue(observation: Observation) -> bool:
    """Whether Kueue admits the attempt: a label that the job gets later is the next attempt's."""
    if observation.ray_job is not None:
        return bool(label(observation.ray_job, QUEUE_LABEL))
    return QUEUE_LABEL in observation.job.metadata.labels


def _next_step(context: Context) -> Decision:
    number = number_of_new_run(context)
    if number is not None:
        return begin_run(context, number)
    if context.before.phase is Phase.FAILED and context.has_changed:
        return resume_failed(context)
    if context.before.phase in (Phase.SUCCEEDED, Phase.FAILED):
        return tidy(context)
    committed = committed_of(context)
    if committed is not None:
        return succeed(context, committed)
    if is_too_long(context):
        return fail_late(context)
    if context.before.plan is None:
        return decide_plan(context)
    if context.job.spec.suspend:
        return suspend(context)
    return decide_attempt(context)
