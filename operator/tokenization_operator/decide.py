"""What to do about a job, from what is seen of it. Decides; does no I/O. Read `_Case.decide` as the table of contents.

Level-triggered: nothing is remembered but the job's own status, and the same sight gives the same answer. A step that
makes something writes the status that says so first; who dies in between finds the status and makes what it names.
So an attempt has one RayJob, however many operators look at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from tokenization_operator import names
from tokenization_operator.children import (
    Attempt,
    build_checkpoint,
    build_plan_job,
    build_ray_job,
    checkpoint_attempt,
    image_of,
)
from tokenization_operator.conditions import make_conditions
from tokenization_operator.display import make_display
from tokenization_operator.failures import Blame, Failure, Limits, judge, remember
from tokenization_operator.observation import KubeRay, Object, Observation, condition, is_leaving
from tokenization_operator.outcome import failure_of_plan, failure_of_ray_job
from tokenization_operator.placement import hosts_of
from tokenization_operator.pod_trouble import find_trouble
from tokenization_operator.ray_state import RayState, Stage, count_ready_workers, read_ray_job
from tokenization_operator.settings import Settings
from tokenization_operator.times import read_time, seconds_since, time_text
from tokenization_worker.api.checkpoint import Committed
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import attempt_digest, run_key
from tokenization_worker.api.status import (
    AttemptStatus,
    JobStatus,
    OutputStatus,
    Phase,
    PlanStatus,
    ProgressStatus,
    RunStatus,
    WorkersStatus,
)


class Kind(StrEnum):
    """Children, as the API server names them."""

    CHECKPOINT = "TokenizationCheckpoint"
    PLAN_JOB = "Job"
    RAY_JOB = "RayJob"
    JOB = "TokenizationJob"


@dataclass(frozen=True, slots=True)
class Create:
    """Make a child, unless it is there; one of that name that somebody else owns is no child."""

    kind: Kind
    body: Object


@dataclass(frozen=True, slots=True)
class Point:
    """Make the checkpoint, or set these fields of its spec: what the next Pods are to do, and who may report."""

    body: Object
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this object."""

    kind: Kind
    name: str
    uid: str


Action = Create | Point | Delete


@dataclass(frozen=True, slots=True)
class Decision:
    """`status` is written first, if it has changed, then the `actions` are done in order; `look_again_s`: at the
    latest, also if nothing happens."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    look_again_s: float | None = None


def decide(seen: Observation, settings: Settings) -> Decision:
    """The next step for one job."""
    decision = _Case(seen, settings).decide()
    status = decision.status
    shown = status.model_copy(
        update={
            "observed_generation": seen.generation,
            "display": make_display(status.plan, status.progress, status.workers),
        }
    )
    accepted = "" if status.phase is not Phase.PENDING or status.reason not in _UNACCEPTED else str(status.reason)
    conditions = make_conditions(shown, seen.status.conditions or (), seen.generation, seen.now, accepted=accepted)
    return Decision(shown.model_copy(update={"conditions": conditions}), decision.actions, decision.look_again_s)


_UNACCEPTED = ("KubeRayUnavailable", "KubeRayTooOld", "SpecInvalid")
_SOON_S = 0.0


class _Case:
    """One sight of one job."""

    def __init__(self, seen: Observation, settings: Settings) -> None:
        self._seen = seen
        self._settings = settings
        self._before = seen.status
        self._run = seen.status.run
        token = seen.job.spec.rerun_token or (self._run.rerun_token if self._run else None)
        self._job = _with_token(seen.job, token)  # a token that was removed still names the run

    def decide(self) -> Decision:
        number = self._new_run()
        if number is not None:
            return self._begin_run(number)
        if self._before.phase is Phase.FAILED and self._was_mended():
            return self._resume_failed()
        if self._before.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return self._tidy()
        committed = self._committed()
        if committed is not None:
            return self._succeed(committed)
        if self._is_too_long():
            limit = self._job.spec.active_deadline_seconds
            return self._fail(
                Failure(self._attempt_number, "DeadlineExceeded", f"the run took longer than {limit} s", Blame.FINAL)
            )
        if self._before.plan is None:
            return self._plan()
        if self._job.spec.suspend:
            return self._suspend()
        return self._attempt()

    # Runs

    def _new_run(self) -> int | None:
        """The number of the run that has to begin; None where the one that is there goes on."""
        if self._run is None:
            return 1
        token = self._seen.job.spec.rerun_token
        if token is not None and token != self._run.rerun_token:
            return self._run.number + 1
        if self._before.plan is None and run_key(self._job) != self._run.run_key:
            return self._run.number + 1  # corrected before there was a plan
        return None

    def _begin_run(self, number: int) -> Decision:
        if self._run is not None and self._has_children():
            return self._wait_for_end(
                "Rerun", f"run {number} begins when what is left of run {self._run.number} is gone"
            )
        name = self._seen.job.metadata.name
        run = RunStatus(
            number=number,
            rerun_token=self._seen.job.spec.rerun_token,
            run_key=run_key(self._seen.job),
            image=image_of(self._seen.job, self._settings, None).name,
            checkpoint=names.checkpoint_name(name, number),
            plan_job=names.plan_job_name(name, number, 1),
            start_time=time_text(self._seen.now),
            spec_digest=attempt_digest(self._seen.job),
        )
        status = JobStatus(phase=Phase.PENDING, reason="RunStarted", message=f"run {number} begins", run=run)
        return Decision(status, look_again_s=_SOON_S)

    def _was_mended(self) -> bool:
        """Whether something that matters for an attempt was changed since the run failed."""
        return self._run is not None and attempt_digest(self._seen.job) != self._run.spec_digest

    def _resume_failed(self) -> Decision:
        assert self._run is not None
        run = self._run.model_copy(update={"spec_digest": attempt_digest(self._seen.job)})
        if self._before.plan is None:
            run = run.model_copy(update={"plan_job": self._next_plan_job()})
        return self._at(Phase.PENDING, "Resumed", "the job was changed: the run goes on", run=run, failures=None)

    def _is_too_long(self) -> bool:
        limit = self._job.spec.active_deadline_seconds
        lasted = seconds_since(self._run.start_time if self._run else None, self._seen.now)
        return limit is not None and lasted is not None and lasted > limit

    # The plan

    def _plan(self) -> Decision:
        assert self._run is not None and self._run.plan_job is not None
        report = self._seen.reports.plan
        if report is not None and report.plan_id is not None and not report.already_complete:
            plan = PlanStatus.model_validate(report.model_dump(include=set(PlanStatus.model_fields)))
            run = self._run.model_copy(
                update={
                    "data_key": report.data_key,
                    "ray_version": report.ray_version,
                    "worker_version": report.worker_version,
                }
            )
            words = (
                f"{plan.files or 0:,} files, {plan.ranges or 0:,} ranges, about {plan.estimated_tokens or 0:,} tokens"
            )
            return self._at(
                Phase.PLANNING, "Planned", words, run=run, plan=self._priced(plan), failures=None, soon=True
            )
        job = self._seen.plan_job
        if job is None:
            if (due := self._due_s()) is not None:
                return self._at(
                    Phase.RETRYING, self._before.reason or "Retrying", self._before.message or "", again_s=due
                )
            return self._make_plan_job()
        if (failure := failure_of_plan(job, self._seen, self._settings.commit_grace_s)) is not None:
            return self._fail(failure)
        trouble = find_trouble(self._seen.pods, self._seen.warnings)
        if trouble is None:
            return self._at(Phase.PLANNING, "Planning", f"Job {job['metadata']['name']} lists the source")
        if trouble.reason == "ImagePullFailed" and _image_of(job) != self._image.name and not is_leaving(job):
            return self._at(
                Phase.PLANNING,
                "ImageChanged",
                f"planning starts again with {self._image.name}",
                run=self._run.model_copy(update={"plan_job": self._next_plan_job()}),
                actions=(_deletion(Kind.PLAN_JOB, job),),
            )
        return self._at(Phase.PLANNING, trouble.reason, trouble.message)

    def _make_plan_job(self) -> Decision:
        assert self._run is not None and self._run.plan_job is not None
        if not self._seen.has_service_account:
            return self._not_prepared(Phase.PLANNING)
        attempt = Attempt(self._run.number, 0, self._image, self._job.spec.workers.replicas)
        body = build_plan_job(self._job, self._seen.uid, attempt, self._run.plan_job, self._settings)
        actions = (self._point(attempt, names.plan_pod_prefix(self._run.plan_job)), Create(Kind.PLAN_JOB, body))
        return self._at(Phase.PLANNING, "Planning", f"Job {self._run.plan_job} lists the source", actions=actions)

    def _next_plan_job(self) -> str:
        assert self._run is not None and self._run.plan_job is not None
        stem, _, number = self._run.plan_job.rpartition("-p")
        return f"{stem}-p{int(number) + 1}"

    def _priced(self, plan: PlanStatus) -> PlanStatus:
        tpu, seconds = self._job.spec.workers.tpu, plan.estimated_seconds
        if tpu is None or seconds is None:
            return plan
        chips = hosts_of(self._job.spec.workers) * tpu.chips_per_host
        hours = chips * seconds / 3600
        changes = {"chip_hours": f"{hours:.1f}"}
        if self._settings.price_per_chip_hour is not None:
            changes["estimated_cost"] = f"{hours * self._settings.price_per_chip_hour:.2f} {self._settings.currency}"
        return plan.model_copy(update=changes)

    # Attempts

    def _attempt(self) -> Decision:
        attempt = self._before.attempt
        if attempt is None or attempt.is_over:
            return self._begin_attempt()
        job = self._seen.ray_job
        if job is None:
            if attempt.ray_job_name is None:
                return self._make_ray_job(attempt)
            return self._fail(
                Failure(
                    attempt.number, "RayJobGone", f"RayJob {attempt.ray_job_name} was deleted", Blame.INFRASTRUCTURE
                )
            )
        return self._follow(attempt, job)

    def _begin_attempt(self) -> Decision:
        if self._has_children(but_plan=True):
            return self._wait_for_end("Retrying", "the next attempt begins when what is left of the last one is gone")
        if (due := self._due_s()) is not None:
            return self._at(Phase.RETRYING, self._before.reason or "Retrying", self._before.message or "", again_s=due)
        if self._seen.kuberay is not KubeRay.THERE:
            return self._without_kuberay()
        if not self._seen.has_service_account:
            return self._not_prepared(Phase.STARTING)
        last = self._before.attempt
        new = AttemptStatus(
            number=(last.number if last else 0) + 1,
            start_time=time_text(self._seen.now),
            replicas=(last.next_replicas if last else None) or self._job.spec.workers.replicas,
            image=self._image.name,
        )
        assert self._run is not None
        run = self._run.model_copy(update={"spec_digest": attempt_digest(self._seen.job)})
        return self._at(
            Phase.STARTING, "AttemptStarted", f"attempt {new.number} begins", attempt=new, run=run, soon=True
        )

    def _make_ray_job(self, attempt: AttemptStatus) -> Decision:
        assert self._run is not None
        made = self._made(attempt)
        body = build_ray_job(self._job, self._seen.uid, made, self._run.ray_version, self._settings)
        actions = (self._point(made, None), Create(Kind.RAY_JOB, body))
        return self._at(Phase.STARTING, "ClusterRequested", f"RayJob {body['metadata']['name']}", actions=actions)

    def _follow(self, attempt: AttemptStatus, job: Object) -> Decision:
        """The RayJob is there: what has become of it."""
        state = read_ray_job(job)
        cluster = (job.get("status") or {}).get("rayClusterName") or None
        attempt = attempt.model_copy(update={"ray_job_name": job["metadata"]["name"], "ray_cluster_name": cluster})
        progress = self._progress(attempt)
        desired = (attempt.replicas or 1) * self._hosts
        workers = WorkersStatus(desired=desired, ready=count_ready_workers(self._seen.pods))
        changes: dict[str, Any] = {"attempt": attempt, "workers": workers, "progress": progress}
        failure = failure_of_ray_job(state, attempt, self._seen, self._settings.commit_grace_s)
        failure = failure or self._lateness(state, attempt, workers, progress)
        if failure is not None:
            return self._fail(failure, **changes)
        actions = () if cluster is None else self._pointed(attempt, cluster)
        if state.stage is Stage.QUEUED:
            queue = self._job.metadata.labels.get(names.QUEUE_LABEL, "")
            return self._at(
                Phase.QUEUED, "Queued", f"waits in LocalQueue {queue!r}" if queue else "suspended", **changes
            )
        if state.stage is Stage.ENDED:
            return self._at(Phase.RUNNING, "Finishing", "the driver has ended; its last word is awaited", **changes)
        if progress is not None and progress.ranges_total is not None and self._has_reported(attempt):
            return self._at(Phase.RUNNING, "Running", self._rates(progress), actions=actions, **changes)
        trouble = find_trouble(self._seen.pods, self._seen.warnings)
        if trouble is not None:
            if trouble.reason == "ImagePullFailed" and attempt.image != self._image.name:
                return self._replace_image(attempt, job, changes)
            return self._at(Phase.STARTING, trouble.reason, trouble.message, actions=actions, **changes)
        return self._at(Phase.STARTING, *self._waiting_words(workers, attempt), actions=actions, **changes)

    def _replace_image(self, attempt: AttemptStatus, job: Object, changes: dict[str, Any]) -> Decision:
        """An image that could not be pulled was corrected: the next attempt, which is no failure."""
        ended = attempt.model_copy(update={"is_over": True})
        return self._at(
            Phase.PENDING,
            "ImageChanged",
            f"the next attempt uses {self._image.name}",
            actions=(_deletion(Kind.RAY_JOB, job),),
            **changes | {"attempt": ended, "workers": None},
        )

    def _waiting_words(self, workers: WorkersStatus, attempt: AttemptStatus) -> tuple[str, str]:
        deadline = read_time(attempt.start_time)
        until = ""
        if deadline is not None:
            until = time_text(deadline + timedelta(seconds=self._job.spec.startup_deadline_seconds))
        least = self._job.spec.workers.min_replicas or self._job.spec.workers.replicas
        hint = "" if least < (attempt.replicas or 1) else "; workers.minReplicas would let it begin with fewer"
        return (
            "WaitingForWorkers",
            f"{workers.ready or 0}/{workers.desired} workers are ready; waits until {until}{hint}",
        )

    def _lateness(
        self, state: RayState, attempt: AttemptStatus, workers: WorkersStatus, progress: ProgressStatus | None
    ) -> Failure | None:
        spec, now = self._job.spec, self._seen.now
        lasted = seconds_since(attempt.start_time, now) or 0.0
        if state.stage is Stage.STARTING and lasted > spec.startup_deadline_seconds:
            words = (
                f"{workers.ready or 0} of {workers.desired} workers were ready after {spec.startup_deadline_seconds} s"
            )
            return Failure(attempt.number, "StartupDeadline", words, Blame.INFRASTRUCTURE)
        if state.stage is not Stage.RUNNING:
            return None
        last = (progress.last_range_time if progress else None) or attempt.start_time
        still = min(lasted, seconds_since(last, now) or lasted)
        if still <= spec.stall_timeout_seconds:
            return None
        words = f"no new range for {spec.stall_timeout_seconds} s; the last one was done at {last}"
        return Failure(attempt.number, "Stalled", words, Blame.INFRASTRUCTURE)

    def _has_reported(self, attempt: AttemptStatus) -> bool:
        report = self._seen.reports.progress
        return report is not None and report.attempt == attempt.number

    def _progress(self, attempt: AttemptStatus) -> ProgressStatus | None:
        report = self._seen.reports.progress
        if report is None or not self._has_reported(attempt) or report.ranges_total is None:
            return self._before.progress
        return ProgressStatus.model_validate(report.model_dump(include=set(ProgressStatus.model_fields)))

    def _rates(self, progress: ProgressStatus) -> str:
        return f"{progress.ranges_completed or 0:,} of {progress.ranges_total or 0:,} ranges"

    def _pointed(self, attempt: AttemptStatus, cluster: str) -> tuple[Action, ...]:
        """Name the head Pod as the one that may report, if that is not done yet."""
        prefix = names.head_pod_prefix(cluster)
        spec = (self._seen.checkpoint or {}).get("spec") or {}
        if spec.get("writerPodPrefix") == prefix:
            return ()
        return (self._point(self._made(attempt), prefix),)

    def _made(self, attempt: AttemptStatus) -> Attempt:
        assert self._run is not None
        return Attempt(self._run.number, attempt.number, self._image, attempt.replicas or 1)

    # Ends

    def _suspend(self) -> Decision:
        attempt = self._before.attempt
        ended = None if attempt is None else attempt.model_copy(update={"is_over": True})
        changes: dict[str, Any] = {"attempt": ended, "workers": None}
        if self._has_children(but_plan=True):
            return self._wait_for_end("Suspending", "what is done is kept", phase=Phase.SUSPENDING, **changes)
        return self._at(Phase.SUSPENDED, "Suspended", "spec.suspend is true; what is done is kept", **changes)

    def _committed(self) -> Committed | None:
        """The proof of success, if it is of this very job and run."""
        found, run = self._seen.reports.committed, self._run
        if found is None or run is None:
            return None
        is_ours = (found.job_uid, found.run, found.run_key) == (self._seen.uid, run.number, run.run_key)
        return found if is_ours else None

    def _succeed(self, committed: Committed) -> Decision:
        plan = self._seen.reports.plan
        already = plan is not None and bool(plan.already_complete) and self._before.attempt is None
        progress = self._before.progress
        if self._before.attempt is not None:
            progress = self._progress(self._before.attempt)
        if progress is not None:
            progress = progress.model_copy(update={"percent": 100, "eta_seconds": 0})
        reason = "AlreadyComplete" if already else "Committed"
        words = f"{committed.documents or 0:,} documents, {committed.tokens or 0:,} tokens: {committed.index_uri}"
        uri = committed.index_uri.rpartition("/")[0]
        assert self._run is not None
        return self._at(
            Phase.SUCCEEDED,
            reason,
            words,
            run=self._run.model_copy(update={"data_key": committed.data_key}),
            progress=progress,
            failures=None,
            output=OutputStatus(uri=uri, index_uri=committed.index_uri, index_digest=committed.index_digest),
            again_s=self._settings.commit_grace_s,
        )

    def _fail(self, failure: Failure, **changes: Any) -> Decision:
        """Book a failure; another try later, or the end."""
        spec, settings = self._job.spec, self._settings
        limits = Limits(spec.backoff_limit, spec.infra_retry_limit, settings.retry_delay_s, settings.retry_delay_max_s)
        done = self._seen.reports.progress.ranges_completed if self._seen.reports.progress else 0
        seed = f"{self._seen.uid}/{self._run.number if self._run else 0}"
        verdict = judge(self._before.failures, failure, done or 0, limits, self._seen.now, seed)
        attempt = changes.pop("attempt", self._before.attempt)
        if attempt is not None:
            attempt = attempt.model_copy(
                update={"is_over": True, "next_replicas": self._fewer(failure, changes.get("workers"))}
            )
        run = self._run
        if failure.attempt == 0 and run is not None and not verdict.is_over:
            run = run.model_copy(update={"plan_job": self._next_plan_job()})
        words = failure.message
        if not verdict.is_over:
            words += f". Try {failure.attempt} failed; the next one begins at {verdict.failures.next_attempt_time}"
        return self._at(
            Phase.FAILED if verdict.is_over else Phase.RETRYING,
            failure.reason,
            words[:4096],
            actions=self._deletions(),
            run=run,
            attempt=attempt,
            failures=verdict.failures,
            last_failures=remember(self._before.last_failures, failure, self._seen.now),
            again_s=None if verdict.is_over else self._settings.retry_delay_s,
            **changes | {"workers": None},
        )

    def _fewer(self, failure: Failure, workers: WorkersStatus | None) -> int | None:
        """How many replicas the next attempt asks for, where fewer than wanted came in time and are enough."""
        spec = self._job.spec.workers
        if failure.reason != "StartupDeadline" or spec.min_replicas is None or workers is None:
            return None
        ready = (workers.ready or 0) // self._hosts
        return ready if ready >= spec.min_replicas else None

    def _tidy(self) -> Decision:
        """Finished: a cluster that outlives its dataset costs money."""
        leftover = self._deletions() if self._before.phase is Phase.FAILED else ()
        if self._before.phase is Phase.SUCCEEDED and self._seen.ray_job is not None:
            state = read_ray_job(self._seen.ray_job)
            done = next((each for each in self._before.conditions or () if each.type == "Complete"), None)
            since = seconds_since(done.last_transition_time if done else None, self._seen.now) or 0.0
            if state.stage not in (Stage.ENDED, Stage.FAILED) and since > self._settings.commit_grace_s:
                leftover = self._deletions()
        again_s = self._settings.commit_grace_s if self._seen.ray_job is not None else None
        return Decision(self._before, (*leftover, *self._expiry()), again_s)

    def _expiry(self) -> tuple[Action, ...]:
        ttl = self._job.spec.ttl_seconds_after_finished
        if ttl is None or self._seen.managed_by:
            return ()
        ended = [each for each in self._before.conditions or () if each.type in ("Complete", "Failed")]
        since = [
            seconds_since(each.last_transition_time, self._seen.now) or 0.0 for each in ended if each.status == "True"
        ]
        if not since or min(since) < ttl:
            return ()
        return (Delete(Kind.JOB, self._job.metadata.name, self._seen.uid),)

    # What all have in common

    @property
    def _image(self) -> Any:
        return image_of(self._seen.job, self._settings, self._run.image if self._run else None)

    @property
    def _hosts(self) -> int:
        return hosts_of(self._job.spec.workers) // self._job.spec.workers.replicas

    @property
    def _attempt_number(self) -> int:
        return self._before.attempt.number if self._before.attempt else 0

    def _point(self, attempt: Attempt, prefix: str | None) -> Point:
        body = build_checkpoint(self._job, self._seen.uid, attempt, prefix)
        return Point(body, checkpoint_attempt(self._job, attempt, prefix))

    def _due_s(self) -> float | None:
        """Seconds until the next try may begin; None where it may now."""
        failures = self._before.failures
        passed = seconds_since(failures.next_attempt_time if failures else None, self._seen.now)
        return None if passed is None or passed >= 0 else -passed

    def _has_children(self, *, but_plan: bool = False) -> bool:
        plan_job = None if but_plan else self._seen.plan_job
        has_plan_job = plan_job is not None and not self._is_to_be_read(Kind.PLAN_JOB, plan_job)
        return self._seen.ray_job is not None or has_plan_job

    def _deletions(self) -> tuple[Action, ...]:
        found = ((Kind.RAY_JOB, self._seen.ray_job), (Kind.PLAN_JOB, self._seen.plan_job))
        return tuple(
            _deletion(kind, child)
            for kind, child in found
            if child is not None and not is_leaving(child) and not self._is_to_be_read(kind, child)
        )

    def _is_to_be_read(self, kind: Kind, child: Object) -> bool:
        """A plan Job that has failed: somebody may want its log."""
        return kind is Kind.PLAN_JOB and condition(child, "Failed") is not None

    def _wait_for_end(self, reason: str, message: str, *, phase: Phase | None = None, **changes: Any) -> Decision:
        return self._at(
            phase or self._before.phase or Phase.PENDING, reason, message, actions=self._deletions(), **changes
        )

    def _not_prepared(self, phase: Phase) -> Decision:
        account = self._image.service_account
        return self._at(
            phase,
            "NamespaceNotPrepared",
            f"namespace {self._job.metadata.namespace} has no ServiceAccount {account!r}. Prepare it: tokjob "
            f"namespace-manifest {self._job.metadata.namespace} | kubectl apply -f -",
        )

    def _without_kuberay(self) -> Decision:
        if self._seen.kuberay is KubeRay.MISSING:
            return self._at(
                Phase.PENDING, "KubeRayUnavailable", "the cluster does not serve RayJobs: install KubeRay 1.6 or newer"
            )
        return self._at(
            Phase.PENDING,
            "KubeRayTooOld",
            "KubeRay's RayJobs have no authOptions, so its dashboards would be open to all: upgrade its "
            "CustomResourceDefinitions to 1.6 or newer",
        )

    def _at(
        self,
        phase: Phase,
        reason: str,
        message: str,
        *,
        actions: tuple[Action, ...] = (),
        soon: bool = False,
        again_s: float | None = None,
        **changes: Any,
    ) -> Decision:
        said = {"phase": phase, "reason": reason, "message": message[:4096]}
        return Decision(self._before.model_copy(update=said | changes), actions, _SOON_S if soon else again_s)


def _with_token(job: TokenizationJob, token: str | None) -> TokenizationJob:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"rerun_token": token})})


def _image_of(job: Object) -> str:
    return str(job["spec"]["template"]["spec"]["containers"][0]["image"])


def _deletion(kind: Kind, child: Object) -> Delete:
    return Delete(kind, child["metadata"]["name"], child["metadata"]["uid"])
