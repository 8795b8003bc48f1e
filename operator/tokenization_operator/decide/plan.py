"""The plan of a run: the Job that makes it, and what its end means. Decides; does no I/O."""

from __future__ import annotations

from datetime import datetime, timedelta

from tokenization_operator.build.children import Attempt, build_plan_job
from tokenization_operator.decide.actions import Create, Decision, deletion
from tokenization_operator.decide.context import AT_ONCE_S, FINISHING, NOT_PREPARED, Case
from tokenization_operator.decide.failure import failure_of_plan, failure_of_trouble
from tokenization_operator.decide.status.cost import expect
from tokenization_operator.decide.status.printer_columns import plan_words
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, condition, is_leaving
from tokenization_operator.observe.pod_diagnosis import Trouble, find_trouble
from tokenization_worker.api.checkpoint import CheckpointPlan
from tokenization_worker.api.keys import attempt_digest
from tokenization_worker.api.status import Phase, PlanStatus
from tokenization_worker.api.types.times import read_time


def decide_plan(case: Case) -> Decision:
    """The next step of a run that has no plan yet."""
    report = case.seen.reports.plan
    if report is not None and report.plan_id is not None and not report.already_complete:
        return _take_plan(case, report)
    job = case.seen.plan_job
    if job is None:
        return case.pause() or _make_plan_job(case)
    grace_s = case.settings.commit_grace_s
    failure = failure_of_plan(job, case.seen, case.waited_s(FINISHING), grace_s)
    if failure is not None:
        return fail(case, failure)
    if condition(job, "Complete") is not None:
        words = _words(job["metadata"]["name"])
        return case.at(Phase.PLANNING, "Planning", words, **case.patience(FINISHING, grace_s))
    if job["spec"].get("suspend"):
        return case.queued()
    trouble = find_trouble(case.seen.pods, () if case.seen.pods else case.seen.warnings)
    is_prepared = case.seen.has_service_account
    if (trouble is not None or not is_prepared) and _would_differ(case, job, trouble) and not is_leaving(job):
        return _plan_again(case, job)
    if not is_prepared:
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        return case.at(Phase.PLANNING, NOT_PREPARED, case.missing_account_words(account))
    if trouble is None:
        return case.at(Phase.PLANNING, "Planning", _words(job["metadata"]["name"]))
    failure = failure_of_trouble(trouble, case.waited_s(trouble.reason), case.seen, 0)
    if failure is not None:
        return fail(case, failure)
    until = case.until(_deadline(case, job), trouble.reason, trouble.limit_s)
    words = join(trouble.message, f"The plan may take until {until}")
    return case.at(Phase.PLANNING, trouble.reason, words, **case.patience(trouble.reason, trouble.limit_s))


def _would_differ(case: Case, job: Object, trouble: Trouble | None) -> bool:
    """Whether a plan would be made otherwise now: the job has changed, or the chart's default image or secrets."""
    if trouble is not None and trouble.reason == "ImagePullFailed" and case.pulls_otherwise(job["spec"]["template"]):
        return True
    return case.has_changed


def _plan_again(case: Case, job: Object) -> Decision:
    """What keeps the plan's Pod from running was corrected: the next plan Job, which is no failure."""
    changes = {
        "plan_job": names.next_plan_job_name(case.run.plan_job),
        "spec_digest": attempt_digest(case.seen.job),
    }
    reason, words = case.words_of_change(job["spec"]["template"], "planning starts again")
    run = case.run.model_copy(update=changes)
    return case.at(Phase.PLANNING, reason, words, run=run, actions=(deletion(Kind.PLAN_JOB, job),))


def _deadline(case: Case, job: Object) -> datetime:
    began = read_time(job["metadata"].get("creationTimestamp")) or case.seen.now
    return began + timedelta(seconds=case.settings.plan_deadline_s)


def _take_plan(case: Case, report: CheckpointPlan) -> Decision:
    plan = PlanStatus.model_validate(report.model_dump(include=set(PlanStatus.model_fields)))
    plan = expect(case.job, plan, case.settings)
    versions = {name: getattr(report, name) for name in ("data_key", "ray_version", "worker_version")}
    return case.at(
        Phase.PLANNING,
        "Planned",
        plan_words(plan),
        run=case.run.model_copy(update=versions),
        plan=plan,
        failures=None,
        again_s=AT_ONCE_S,
    )


def _make_plan_job(case: Case) -> Decision:
    if not case.seen.has_service_account:
        return case.not_prepared(Phase.PLANNING)
    name = str(case.run.plan_job)
    attempt = Attempt(case.run.number, 0, case.image, case.job.spec.workers.replicas)
    body = build_plan_job(case.job, case.seen.uid, attempt, name, case.settings)
    point = case.point(attempt, names.plan_pod_prefix(name))
    return case.making(Phase.PLANNING, "Planning", _words(name), point, Create(Kind.PLAN_JOB, body))


def _words(name: str) -> str:
    return f"Job {name} lists the source"
