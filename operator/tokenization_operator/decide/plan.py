"""The plan of a run: its Job, and what the Job's end means. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from tokenization_operator.build.children import Attempt, build_plan_job, build_trials
from tokenization_operator.decide.actions import Create, Decision, deletion
from tokenization_operator.decide.context import AT_ONCE_S, Context
from tokenization_operator.decide.cost import expect
from tokenization_operator.decide.failure import failure_of_diagnosis, failure_of_plan
from tokenization_operator.decide.status.printer_columns import plan_words
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, condition, is_leaving
from tokenization_operator.observe.pod_diagnosis import Diagnosis, diagnose
from tokenization_worker.api.checkpoint import CheckpointPlan
from tokenization_worker.api.keys import attempt_digest
from tokenization_worker.api.status import Phase, PlanStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import read_time


def decide_plan(context: Context) -> Decision:
    """The next step of a run without a plan."""
    report = context.observation.reports.plan
    if report is not None and report.plan_id is not None and not report.already_complete:
        return _take_plan(context, report)
    job = context.observation.plan_job
    if job is None:
        return context.pause() or _make_plan_job(context)
    grace_s = context.settings.commit_grace_s
    failure = failure_of_plan(job, context.observation, context.waited_s(StatusReason.FINISHING), grace_s)
    if failure is not None:
        return fail(context, failure)
    if condition(job, "Complete") is not None:
        words = _words(job["metadata"]["name"])
        return context.at(
            Phase.PLANNING, StatusReason.PLANNING, words, **context.patience(StatusReason.FINISHING, grace_s)
        )
    if job["spec"].get("suspend"):
        return context.queued(job)
    diagnosis = diagnose(context.observation.pods, () if context.observation.pods else context.observation.warnings)
    is_prepared = context.observation.has_service_account
    if (diagnosis is not None or not is_prepared) and _would_differ(context, job, diagnosis) and not is_leaving(job):
        return _plan_again(context, job)
    if not is_prepared:
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        return context.at(Phase.PLANNING, StatusReason.NAMESPACE_NOT_PREPARED, context.missing_account_message(account))
    if diagnosis is None:
        return context.at(Phase.PLANNING, StatusReason.PLANNING, _words(job["metadata"]["name"]))
    failure = failure_of_diagnosis(diagnosis, context.waited_s(diagnosis.reason), context.observation, 0)
    if failure is not None:
        return fail(context, failure)
    until = context.until(_deadline(context, job), diagnosis.reason, diagnosis.limit_s)
    words = join(diagnosis.message, f"The plan may take until {until}")
    return context.at(Phase.PLANNING, diagnosis.reason, words, **context.patience(diagnosis.reason, diagnosis.limit_s))


def _would_differ(context: Context, job: Object, diagnosis: Diagnosis | None) -> bool:
    """Whether a plan Job created now would differ: the job has changed, or the chart's default image or secrets."""
    if (
        diagnosis is not None
        and diagnosis.reason is StatusReason.IMAGE_PULL_FAILED
        and context.pulls_otherwise(job["spec"]["template"])
    ):
        return True
    return context.has_changed


def _plan_again(context: Context, job: Object) -> Decision:
    """The cause that kept the plan's Pod from running was corrected: replace the plan Job, without counting a
    failure."""
    changes = {
        "plan_job": names.next_plan_job_name(context.run.plan_job),
        "spec_digest": attempt_digest(context.observation.job),
    }
    reason, words = context.change_message(job["spec"]["template"], "planning starts again")
    run = context.run.model_copy(update=changes)
    return context.at(Phase.PLANNING, reason, words, run=run, actions=(deletion(Kind.PLAN_JOB, job),))


def _deadline(context: Context, job: Object) -> datetime:
    began = read_time(job["metadata"].get("creationTimestamp")) or context.observation.now
    return began + timedelta(seconds=context.settings.plan_deadline_s)


def _take_plan(context: Context, report: CheckpointPlan) -> Decision:
    plan = PlanStatus.model_validate(report.model_dump(include=set(PlanStatus.model_fields)))
    plan = expect(context.job, plan, context.settings)
    versions = {name: getattr(report, name) for name in ("data_key", "ray_version", "worker_version")}
    return context.at(
        Phase.PLANNING,
        StatusReason.PLANNED,
        plan_words(plan),
        run=context.run.model_copy(update=versions),
        plan=plan,
        failures=None,
        requeue_after_s=AT_ONCE_S,
    )


def _make_plan_job(context: Context) -> Decision:
    if not context.observation.has_service_account:
        return context.not_prepared(Phase.PLANNING)
    name = str(context.run.plan_job)
    attempt = Attempt(context.run.number, 0, context.image, context.job.spec.workers.replicas)
    body = build_plan_job(context.job, context.observation.uid, attempt, name, context.settings)
    update = context.update_checkpoint(attempt, names.plan_pod_prefix(name))
    trials = build_trials(context.job, context.observation.uid, attempt, context.settings)
    create = Create(Kind.PLAN_JOB, body, trials)
    return context.making(Phase.PLANNING, StatusReason.PLANNING, _words(name), update, create)


def _words(name: str) -> str:
    return f"Job {name} lists the source"
