"""One look at one job: see, decide, write the status, do what it says, tell what has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from kubernetes.aio.client.exceptions import ApiException
from pydantic import ValidationError

from tokenization_operator.build.children import image_of
from tokenization_operator.decide.actions import Create, Decision, Delete, UpdateCheckpoint, deletion
from tokenization_operator.decide.context import NOT_MADE
from tokenization_operator.decide.next_step import SOON_S, decide, not_made
from tokenization_operator.decide.pending import EVENT, HOW_TO_BEGIN_IT
from tokenization_operator.decide.status.unknown_fields import keep_unknown_fields
from tokenization_operator.decide.unsupported import REASON, unsupported_status
from tokenization_operator.informer.cache import Cache, Key
from tokenization_operator.kube.api_errors import describe_error
from tokenization_operator.kube.client import Conflict, JobGone, KubeClient, NotOwned, Rejected
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import ray_job_name
from tokenization_operator.objects.reading import Object, has_ended, is_leaving, is_owned
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import DIAGNOSES, diagnose
from tokenization_operator.observe.rayjob_status import cluster_name
from tokenization_operator.settings import Settings
from tokenization_worker.api.checkpoint import CheckpointStatus
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.times import read_time, seconds_since
from tokenization_worker.errors import SpecError

log = logging.getLogger(__name__)

_MANAGERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "app.kubernetes.io/instance": "Argo CD or Helm",  # by default before Argo CD 3
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}
_CONFLICT_S = 0.1
_WARNINGS_LAST = timedelta(minutes=10)
"""What could not be made is tried again within minutes, and warned of again: an older warning is past."""

_ORPHANS = "orphan"
"""The finalizer of `kubectl delete --cascade=orphan`."""

_STEPS = ("RunStarted", "AttemptStarted")
"""Reasons that stand for a moment only: what follows says more."""


class Reconciler:
    """Looks at jobs; what it needs to know is in the cache, and what it cannot find there it asks the cluster."""

    def __init__(
        self,
        cache: Cache,
        cluster: KubeClient,
        settings: Settings,
        metrics: Metrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cache = cache
        self._kube = cluster
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._untold: set[str] = set()
        """Namespaces whose events could not be read, and whose log says so."""
        self._parsed: dict[Key, tuple[tuple[str, int, dict[str, str]], TokenizationJob]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Do what the job needs now; returns after how many seconds to look again, or None."""
        found = self._cache.get(Kind.JOB, *key)
        if found is None or is_leaving(found):
            self._parsed.pop(key, None)
        if found is None:
            return None
        try:
            return await (self._stop(found) if is_leaving(found) else self._look_at(found))
        except Conflict as conflict:
            if conflict.there is not None:
                self._cache.put(Kind.JOB, conflict.there)
            return _CONFLICT_S
        except JobGone:
            self._cache.drop(Kind.JOB, found)
            return None
        finally:
            if self._cache.is_at_rest(key):
                self._parsed.pop(key, None)  # it may be there for months, and is seldom looked at

    async def _stop(self, found: Object) -> None:
        """Delete the RayJob and the plan Job of a job that was deleted and still exists.

        Kubernetes deletes them together with the job, which a finalizer of another tool may keep for hours. A job that
        was deleted with `--cascade=orphan` keeps its children.
        """
        metadata = found["metadata"]
        if _ORPHANS in (metadata.get("finalizers") or ()):
            return
        namespace, key = metadata["namespace"], (metadata["namespace"], metadata["name"])
        left = [
            deletion(kind, child)
            for kind in (Kind.RAY_JOB, Kind.PLAN_JOB)
            for child in self._cache.children(key, kind)
            if is_owned(child, metadata["uid"]) and not is_leaving(child) and not has_ended(child)
        ]
        if left:
            await self._kube.require_current(found)
        for each in left:
            await self._delete(each, namespace)
        if left and (holders := metadata.get("finalizers")):
            words = f"the job was deleted: its machines are given back. It stays until {', '.join(holders)} let it go"
            log.info("%s", words, extra={"job": "/".join(key)})
            await self._kube.events.post(found, "Normal", "MachinesReturned", words)

    async def _look_at(self, found: Object) -> float | None:
        try:
            observation = await self._observe(found)
        except (SpecError, ValidationError) as error:
            await self._report_unsupported(found, error)
            return None
        return await self._carry_out(decide(observation, self._settings), found, observation)

    async def _carry_out(self, decision: Decision, found: Object, observation: Observation) -> float | None:
        try:
            found = await self._write(found, observation, decision.status)
            if decision.actions:
                await self._kube.require_current(found)
            for action in decision.actions:
                await self._do(action, observation, found)
        except Rejected as error:
            return await self._report_not_made(found, observation, decision, "ClusterRejected", str(error))
        except NotOwned as error:
            words = f"{error} has another owner: delete it, or give this job another name"
            return await self._report_not_made(found, observation, decision, "NameTaken", words)
        return decision.requeue_after_s

    async def _observe(self, found: Object) -> Observation:
        metadata = found["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        job = self._parse(found)
        status = JobStatus.model_validate(found.get("status") or {})
        key = (namespace, name)
        run = status.run
        mine = {
            kind: [child for child in self._cache.children(key, kind) if is_owned(child, uid)]
            for kind in (Kind.CHECKPOINT, Kind.PLAN_JOB, Kind.RAY_JOB)
        }
        checkpoint = next((c for c in mine[Kind.CHECKPOINT] if run and c["metadata"]["name"] == run.checkpoint), None)
        plan_job = next((c for c in mine[Kind.PLAN_JOB] if run and c["metadata"]["name"] == run.plan_job), None)
        reports = CheckpointStatus.model_validate((checkpoint or {}).get("status") or {})
        observation = Observation(
            job=job,
            uid=uid,
            generation=metadata["generation"],
            status=status,
            now=self._now(),
            checkpoint=checkpoint,
            plan_job=plan_job,
            managed_by=_manager(metadata),
            reports=reports,
        )
        observation = self._with_ray_jobs(observation, mine[Kind.RAY_JOB])
        return await self._ask(replace(observation, pods=self._pods(key, plan_job, observation.ray_job)))

    def _parse(self, found: Object) -> TokenizationJob:
        """The job as its user wants it; most versions of it differ in their status alone."""
        metadata = found["metadata"]
        labels = metadata.get("labels") or {}
        version = metadata["uid"], metadata["generation"], labels
        key = metadata["namespace"], metadata["name"]
        known = self._parsed.get(key)
        if known is not None and known[0] == version:
            return known[1]
        fields = {field: found[field] for field in ("apiVersion", "kind", "spec")}
        names = {"namespace": key[0], "name": key[1], "labels": labels}
        job = TokenizationJob.from_object({**fields, "metadata": names}, is_stored=True)
        self._parsed[key] = version, job
        return job

    def _with_ray_jobs(self, observation: Observation, found: list[Object]) -> Observation:
        """With that of the attempt. One of another attempt is never taken for it: all others have to go."""
        run, attempt = observation.status.run, observation.status.attempt
        name = ray_job_name(observation.job.metadata.name, run.number, attempt.number) if run and attempt else ""
        mine = next((each for each in found if each["metadata"]["name"] == name), None)
        return replace(observation, ray_job=mine, stray_ray_jobs=tuple(each for each in found if each is not mine))

    def _pods(self, key: Key, plan_job: Object | None, ray_job: Object | None) -> tuple[Object, ...]:
        """Of the children that are there now."""
        wanted = {child["metadata"]["name"] for child in (plan_job, ray_job) if child is not None}
        if ray_job is not None and (cluster := cluster_name(ray_job)) is not None:
            wanted.add(cluster)
        found = []
        for pod in self._cache.children(key, Kind.POD):
            labels = pod["metadata"].get("labels") or {}
            owners = {owner.get("name") for owner in pod["metadata"].get("ownerReferences") or ()}
            if wanted & ({labels.get("ray.io/cluster"), labels.get("batch.kubernetes.io/job-name")} | owners):
                found.append(pod)
        return tuple(found)

    async def _ask(self, observation: Observation) -> Observation:
        """What no watch tells, and what watches may not have told yet, asked only where it matters."""
        if observation.status.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return observation
        if observation.status.phase is Phase.SUSPENDED and observation.job.spec.suspend:
            return observation
        if observation.ray_job is None and observation.status.plan is not None:
            observation = await self._find_ray_jobs(observation)
        attempt = observation.status.attempt
        if attempt is not None and attempt.head_pod is not None and not attempt.is_over:
            observation = replace(observation, pods=await self._with_head(observation, attempt.head_pod))
        child = observation.plan_job if observation.status.plan is None else observation.ray_job
        account = (
            image_of(observation.job, self._settings, None).service_account if child is None else _account_of(child)
        )
        observation = replace(
            observation, has_service_account=await self._kube.has_service_account(observation.namespace, account)
        )
        if child is None:  # it will be made
            is_planned = observation.status.plan is not None
            return (
                replace(observation, kuberay=await self._kube.kuberay(observation.namespace))
                if is_planned
                else observation
            )
        if observation.status.phase is Phase.RUNNING:
            return observation
        names = frozenset(name for name in (child["metadata"]["name"], cluster_name(child)) if name)
        made = read_time(child["metadata"].get("creationTimestamp")) or observation.now
        since = max(made, observation.now - _WARNINGS_LAST)  # a namesake may have been there before
        return await self._ask_for_events(observation, names, since)

    async def _ask_for_events(self, observation: Observation, names: frozenset[str], since: datetime) -> Observation:
        """What events say. They only explain a wait: where they cannot be read, all else goes on."""
        try:
            told = replace(observation, warnings=await self._kube.events.warnings(observation.namespace, names, since))
            told = await self._ask_of_pod(told)
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            if observation.namespace not in self._untold:
                self._untold.add(observation.namespace)
                log.warning(
                    "cannot read the events of namespace %s, so no status says what they tell of Pods that cannot be "
                    "made: %s. Where this is a refusal, give the operator the role of the chart",
                    observation.namespace,
                    describe_error(error),
                )
            return replace(observation, warnings_known=False)
        self._untold.discard(observation.namespace)
        return told

    async def _ask_of_pod(self, observation: Observation) -> Observation:
        """What is said of a Pod for which there has been no node for so long: a request for each such wait."""
        wait, diagnosis = observation.status.wait, diagnose(observation.pods, ())
        if (
            wait is None
            or diagnosis is None
            or diagnosis.limit_s is None
            or not diagnosis.pod
            or wait.reason != diagnosis.reason
        ):
            return observation
        if (seconds_since(wait.since, observation.now) or 0.0) < diagnosis.limit_s:
            return observation
        return replace(observation, pod_events=await self._kube.events.of_pod(observation.namespace, diagnosis.pod))

    async def _find_ray_jobs(self, observation: Observation) -> Observation:
        """After a start, watches may not have brought it yet: it is not gone before the cluster says so."""
        found = await self._kube.ray_jobs(observation.namespace, observation.job.metadata.name)
        mine = [each for each in found if is_owned(each, observation.uid)]
        for each in mine:
            self._cache.put(Kind.RAY_JOB, each)
        return self._with_ray_jobs(observation, mine)

    async def _with_head(self, observation: Observation, name: str) -> tuple[Object, ...]:
        if any(pod["metadata"]["name"] == name for pod in observation.pods):
            return observation.pods
        found = await self._kube.pod(observation.namespace, name)
        return observation.pods if found is None else (*observation.pods, found)

    async def _report_not_made(
        self, found: Object, observation: Observation, decision: Decision, reason: str, words: str
    ) -> float:
        await self._write(found, observation, not_made(observation, decision.status, reason, words))
        return SOON_S if decision.requeue_after_s is None else min(SOON_S, decision.requeue_after_s)

    async def _report_unsupported(self, found: Object, error: Exception) -> None:
        status = unsupported_status(found, error, self._now())
        if status is None or status == found.get("status"):
            return
        metadata = found["metadata"]
        log.error("%s", status["message"], extra={"job": f"{metadata['namespace']}/{metadata['name']}"})
        found = await self._store(found, status)
        await self._kube.events.post(found, "Warning", REASON, status["message"])

    async def _store(self, found: Object, status: dict[str, Any]) -> Object:
        """The job with another status; raises `Conflict`, `JobGone`."""
        found = await self._kube.write_status(found, status)
        self._cache.put(Kind.JOB, found)
        return found

    async def _write(self, found: Object, observation: Observation, after: JobStatus) -> Object:
        """Write the status if it has changed, and tell the change."""
        there = found.get("status") or {}
        status = keep_unknown_fields(there, after.model_dump(mode="json", by_alias=True, exclude_none=True))
        if status == there:
            return found
        found = await self._store(found, status)
        before = observation.status
        plan_began = observation.plan_job["metadata"].get("creationTimestamp") if observation.plan_job else None
        self._metrics.wrote(before, after, observation.now, plan_began)
        if (before.phase, before.reason) != (after.phase, after.reason):
            log.info(
                "%s: %s",
                after.reason,
                after.message,
                extra={
                    "job": f"{observation.job.metadata.namespace}/{observation.job.metadata.name}",
                    "run": after.run.number if after.run else 0,
                    "attempt": after.attempt.number if after.attempt else 0,
                    "phase": str(after.phase),
                },
            )
            self._metrics.moved(after.phase, after.reason)
            is_bad = after.phase in (Phase.FAILED, Phase.RETRYING) or after.reason in (*NOT_MADE, *DIAGNOSES)
            words = after.message or ""
            if after.reason not in _STEPS:
                await self._kube.events.post(found, "Warning" if is_bad else "Normal", after.reason or "", words)
        pending = after.attempt.pending_changes if after.attempt and not after.attempt.is_over else None
        if pending and not (before.attempt and before.attempt.pending_changes == pending):
            await self._kube.events.post(found, "Normal", EVENT, f"{pending}; {HOW_TO_BEGIN_IT}")
        if after.phase in (Phase.SUCCEEDED, Phase.FAILED) and before.phase is not after.phase:
            await self._report_ttl_ignored(found, observation)
        return found

    async def _report_ttl_ignored(self, found: Object, observation: Observation) -> None:
        if observation.managed_by and observation.job.spec.ttl_seconds_after_finished is not None:
            words = f"ttlSecondsAfterFinished is ignored: {observation.managed_by} would make the job again"
            await self._kube.events.post(found, "Normal", "TtlIgnored", words)

    async def _do(self, action: Create | UpdateCheckpoint | Delete, observation: Observation, found: Object) -> None:
        match action:
            case Create():
                made = await self._kube.create(action, observation.uid)
                self._cache.put(action.kind, made)
            case UpdateCheckpoint():
                self._cache.put(
                    Kind.CHECKPOINT, await self._kube.update_checkpoint(action, observation.uid, observation.checkpoint)
                )
            case Delete(kind=Kind.JOB):
                await self._kube.delete(deletion(Kind.JOB, found), observation.namespace)
            case Delete():
                await self._delete(action, observation.namespace)

    async def _delete(self, wanted: Delete, namespace: str) -> None:
        """Delete a child, read again first; raises `Conflict` where it is not what the decision was made on."""
        there = await self._kube.read(wanted.kind, namespace, wanted.name)
        if there is None or there["metadata"]["uid"] != wanted.uid:
            self._cache.forget(wanted.kind, namespace, wanted.name, wanted.uid)  # no watch may tell of it any more
        elif there["metadata"]["resourceVersion"] != wanted.resource_version:
            self._cache.put(wanted.kind, there)
            raise Conflict
        else:
            await self._kube.delete(wanted, namespace)


def _account_of(child: Object) -> str:
    """The ServiceAccount of the Pods of a plan Job or a RayJob."""
    spec = child["spec"]
    template = spec["template"] if "template" in spec else spec["rayClusterSpec"]["headGroupSpec"]["template"]
    return str(template["spec"]["serviceAccountName"])


def _manager(metadata: dict[str, Any]) -> str:
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return next((who for mark, who in _MANAGERS.items() if mark in marks), "")
