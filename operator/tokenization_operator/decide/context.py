"""The context of all decisions about one job: its observation, status, settings and shared steps. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tokenization_operator.build.children import Attempt, build_checkpoint, checkpoint_attempt, image_of
from tokenization_operator.build.defaults import with_defaults
from tokenization_operator.build.placement import hosts_of
from tokenization_operator.build.pod import Image
from tokenization_operator.decide.actions import Action, Decision, UpdateCheckpoint, deletion
from tokenization_operator.decide.status.truncate import shorten
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, condition, is_leaving, label
from tokenization_operator.observe.observation import Observation
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import WORKER_ACCOUNT, TokenizationJob
from tokenization_worker.api.keys import attempt_digest
from tokenization_worker.api.status import AttemptStatus, JobStatus, Phase, RunStatus, WaitStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import seconds_since, time_text

AT_ONCE_S = 0.0
SILENCE_S = 60.0
"""KubeRay writes a RayJob's first status, and lets go of one that is deleted, within seconds; with thousands, within a
minute."""

NOT_MADE = (StatusReason.CLUSTER_REJECTED, StatusReason.NAME_TAKEN)
"""Reasons why a child could not be created."""


class Context:
    """`before`: the job's present status. `job`: the job as its current run reads it, with the chart's defaults."""

    def __init__(self, observation: Observation, settings: Settings) -> None:
        self.observation = observation
        self.settings = settings
        self.before: JobStatus = observation.status
        # The current run keeps a token that the user has removed.
        token = observation.job.spec.rerun_token or (
            observation.status.run.rerun_token if observation.status.run else None
        )
        self.job = with_defaults(_with_token(observation.job, token), settings.job_pods)

    @property
    def run(self) -> RunStatus:
        """The current run; only after one has begun."""
        assert self.before.run is not None
        return self.before.run

    @property
    def image(self) -> Image:
        """The image of the next Pods."""
        return image_of(self.observation.job, self.settings, self.before.run.image if self.before.run else None)

    @property
    def hosts_of_replica(self) -> int:
        """Pods per replica of the workers."""
        return hosts_of(self.job.spec.workers) // self.job.spec.workers.replicas

    def update_checkpoint(self, attempt: Attempt, writer_pod_prefix: str | None) -> UpdateCheckpoint:
        """The action that tells the Pods of an attempt what to do."""
        body = build_checkpoint(self.job, self.observation.uid, attempt, writer_pod_prefix)
        return UpdateCheckpoint(body, checkpoint_attempt(self.job, attempt, writer_pod_prefix))

    def at(
        self,
        phase: Phase,
        reason: str,
        message: str,
        *,
        actions: tuple[Action, ...] = (),
        requeue_after_s: float | None = None,
        **changes: Any,
    ) -> Decision:
        """Decide that the job is in this phase. `changes`: other fields of its status; a `wait` not among them ends."""
        said = {"phase": phase, "reason": reason, "message": shorten(message), "wait": None}
        return Decision(self.before.model_copy(update=said | changes), actions, requeue_after_s)

    def making(self, phase: Phase, reason: str, message: str, *actions: Action) -> Decision:
        """Create a child now. An earlier rejection stays in the status until the API server accepts the child."""
        if self.before.reason in NOT_MADE:
            reason, message = self.before.reason, self.before.message or ""
        return self.at(phase, reason, message, actions=actions)

    def queued(self, child: Object, **changes: Any) -> Decision:
        """Kueue holds a child."""
        queue = label(child, names.QUEUE_LABEL)
        words = f"waits in LocalQueue {queue!r}" if queue else "suspended"
        return self.at(Phase.QUEUED, StatusReason.QUEUED, words, **changes)

    def pulls_otherwise(self, template: Object) -> bool:
        """Whether the next Pods would use another image or other pull secrets than this template."""
        spec = template["spec"]
        secrets = tuple(each["name"] for each in spec.get("imagePullSecrets") or ())
        return (spec["containers"][0]["image"], secrets) != (self.image.name, self.image.pull_secrets)

    def wait(self, reason: str) -> WaitStatus:
        """The wait for this reason: the current one, or one that begins now."""
        before = self.before.wait
        if before is not None and before.reason == reason:
            return before
        return WaitStatus(reason=reason, since=time_text(self.observation.now))

    def waited_s(self, reason: str) -> float:
        """How long the job has waited for this reason, by the operator's clock alone."""
        return seconds_since(self.wait(reason).since, self.observation.now) or 0.0

    def until(self, deadline: datetime, reason: str, limit_s: float | None) -> str:
        """When a wait ends: at the deadline, or earlier if this wait has its own limit."""
        requeue_after_s = self.patience(reason, limit_s).get("requeue_after_s")
        return time_text(
            deadline
            if requeue_after_s is None
            else min(deadline, self.observation.now + timedelta(seconds=requeue_after_s))
        )

    def patience(self, reason: str, limit_s: float | None) -> dict[str, Any]:
        """Arguments for `at`: this wait, and a reconcile at its end; empty without a limit. A wait that has expired
        without ending anything starts again."""
        if limit_s is None:
            return {}
        left_s = limit_s - self.waited_s(reason)
        if left_s > 0:
            return {"wait": self.wait(reason), "requeue_after_s": left_s}
        return {"wait": WaitStatus(reason=reason, since=time_text(self.observation.now)), "requeue_after_s": limit_s}

    @property
    def has_changed(self) -> bool:
        """Whether a field that matters for an attempt has changed since the last plan or attempt began."""
        known = self.run.spec_digest
        return known is not None and attempt_digest(self.observation.job) != known

    def change_message(self, template: Object | None, words: str) -> tuple[str, str]:
        """Reason and message when a changed job replaces a plan or an attempt. `template`: of the replaced Pods."""
        if template is not None and self.pulls_otherwise(template):
            return StatusReason.IMAGE_CHANGED, f"{words} with {self.image.name}"
        return StatusReason.SPEC_CHANGED, f"the job was changed: {words} with what it says now"

    @property
    def is_account_back(self) -> bool:
        """Whether the Pods' ServiceAccount was missing at the last reconcile and exists again."""
        return self.before.reason == StatusReason.NAMESPACE_NOT_PREPARED and self.observation.has_service_account

    def pause(self) -> Decision | None:
        """Wait for the next try; None if it may begin now."""
        failures = self.before.failures
        passed = seconds_since(failures.next_attempt_time if failures else None, self.observation.now)
        if passed is None or passed >= 0:
            return None
        reason, message = self.why_it_waits()
        return self.at(Phase.RETRYING, reason, message, requeue_after_s=-passed)

    def why_it_waits(self) -> tuple[str, str]:
        """Reason and message of a job between two attempts: why the last one ended, unless KubeRay was silent since."""
        reason, message = self.before.reason, self.before.message
        if reason == StatusReason.KUBERAY_SILENT:
            reason, message = None, "KubeRay has deleted the objects of the last attempt"
        return reason or StatusReason.RETRYING, message or "the operator deletes its objects first"

    def wait_for_end(self, reason: str, message: str, *, phase: Phase | None = None, **changes: Any) -> Decision:
        """Delete the children of an attempt or a run and wait until they are gone."""
        phase = phase or self.before.phase or Phase.PENDING
        jobs = (self.observation.ray_job, *self.observation.stray_ray_jobs)
        leaving = [each for each in jobs if each is not None and is_leaving(each)]
        left_s = min((SILENCE_S - self._seconds_since_deletion(each) for each in leaving), default=None)
        if left_s is not None and left_s <= 0:
            oldest = max(leaving, key=self._seconds_since_deletion)["metadata"]["name"]
            reason, message = StatusReason.KUBERAY_SILENT, self.silence_message("has not let go of the deleted", oldest)
            left_s = None
        return self.at(phase, reason, message, actions=self.deletions(), requeue_after_s=left_s, **changes)

    def _seconds_since_deletion(self, item: Object) -> float:
        return seconds_since(item["metadata"]["deletionTimestamp"], self.observation.now) or 0.0

    def silence_message(self, what: str, ray_job: str) -> str:
        """`what`: what KubeRay has not done with the RayJob."""
        return (
            f"KubeRay {what} RayJob {ray_job} for {SILENCE_S:.0f} s. Check that its operator runs and watches this "
            "namespace: kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator"
        )

    def ended_attempt(self) -> AttemptStatus | None:
        """The attempt marked as over: written before its RayJob is deleted, so that no later edit revives it."""
        attempt = self.before.attempt
        return None if attempt is None else attempt.model_copy(update={"is_over": True})

    def not_prepared(self, phase: Phase) -> Decision:
        """No Pod can be created before the namespace has the ServiceAccount."""
        return self.at(
            phase, StatusReason.NAMESPACE_NOT_PREPARED, self.missing_account_message(self.image.service_account)
        )

    def missing_account_message(self, account: str) -> str:
        namespace = self.job.metadata.namespace
        option = "" if account == WORKER_ACCOUNT else f" --service-account {account}"
        return (
            f"namespace {namespace} has no ServiceAccount {account!r}. Prepare it: tokjob namespace-manifest "
            f"{namespace}{option} | kubectl apply -f -"
        )

    def has_children(self, *, but_plan: bool = False) -> bool:
        """Whether children exist that must be gone before the next attempt or run begins."""
        plan_job = None if but_plan else self.observation.plan_job
        has_plan_job = plan_job is not None and not _is_to_be_read(Kind.PLAN_JOB, plan_job)
        return self.observation.ray_job is not None or bool(self.observation.stray_ray_jobs) or has_plan_job

    def deletions(self) -> tuple[Action, ...]:
        """Delete all children that use machines."""
        found = ((Kind.RAY_JOB, self.observation.ray_job), (Kind.PLAN_JOB, self.observation.plan_job))
        return tuple(
            deletion(kind, child)
            for kind, child in found
            if child is not None and not is_leaving(child) and not _is_to_be_read(kind, child)
        )


def _is_to_be_read(kind: Kind, child: Object) -> bool:
    """Whether this is a failed plan Job, which stays so that users can read its Pod's log."""
    return kind is Kind.PLAN_JOB and condition(child, "Failed") is not None


def _with_token(job: TokenizationJob, token: str | None) -> TokenizationJob:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"rerun_token": token})})
