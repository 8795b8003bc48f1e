"""Reads all that a decision about one job needs: from the cache, and from the API server what no watch delivers.

The observer lives in this room because it reads the informer's cache and sends requests through `kube`. The room
`observe` below holds the values and the pure selection of children, and may import neither.

Requests are sent only where their answer can change the decision: an observation of a running or finished job costs
none, except for a ServiceAccount or a head Pod that the cache does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import aiohttp
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.build.children import image_of
from tokenization_operator.informer.cache import Cache, Key
from tokenization_operator.kube.api_errors import describe_error
from tokenization_operator.kube.client import KubeClient
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, is_owned
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import diagnose
from tokenization_operator.observe.rayjob_status import cluster_name, find_head
from tokenization_operator.observe.selection import (
    find_manager,
    find_named,
    select_attempt_pods,
    select_pods,
    service_account_of,
    with_ray_jobs,
)
from tokenization_operator.settings import Settings
from tokenization_worker.api.checkpoint import CheckpointStatus
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.times import read_time, seconds_since

log = logging.getLogger(__name__)

_WARNINGS_LAST = timedelta(minutes=10)
"""Kubernetes and KubeRay retry a failed creation within minutes and warn again: an older warning no longer holds."""


class Observer:
    """Makes observations of jobs. Remembers the parsed specs of unfinished jobs until `forget`."""

    def __init__(self, cache: Cache, kube: KubeClient, settings: Settings, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._kube = kube
        self._settings = settings
        self._now = now
        self._parsed: dict[Key, tuple[tuple[str, int, dict[str, str]], TokenizationJob]] = {}
        self._unreadable: set[str] = set()
        """Namespaces whose events could not be read and whose log entry was written."""

    def forget(self, key: Key) -> None:
        """Drop the parsed spec of a job that is deleted or at rest."""
        self._parsed.pop(key, None)

    async def observe(self, found: Object) -> Observation:
        """Observe a job as the cache has it. Raises `SpecError` or `ValidationError` for one it cannot read."""
        observation = self.observe_cached(found)
        status = observation.status
        if status.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return observation
        if status.phase is Phase.SUSPENDED and observation.job.spec.suspend:
            return observation
        if observation.ray_job is None and status.plan is not None:
            observation = await self._list_ray_jobs(observation)
        attempt = status.attempt
        if attempt is not None and attempt.head_pod is not None and not attempt.is_over:
            observation = await self._read_head(observation, attempt.head_pod)
        child = observation.plan_job if status.plan is None else observation.ray_job
        observation = await self._check_account(observation, child)
        if child is None:  # the decision will create it
            if status.plan is None:
                return observation
            return replace(observation, kuberay=await self._kube.kuberay(observation.namespace))
        return observation if status.phase is Phase.RUNNING else await self._read_events(observation, child)

    def observe_cached(self, found: Object) -> Observation:
        """Observe what the watches delivered. Raises as `observe`."""
        metadata = found["metadata"]
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        job = self._parse(found)
        status = JobStatus.model_validate(found.get("status") or {})
        run = status.run
        checkpoint = find_named(self._owned(key, uid, Kind.CHECKPOINT), run.checkpoint) if run else None
        plan_job = find_named(self._owned(key, uid, Kind.PLAN_JOB), run.plan_job) if run else None
        observation = Observation(
            job=job,
            uid=uid,
            generation=metadata["generation"],
            status=status,
            now=self._now(),
            created=metadata["creationTimestamp"],
            checkpoint=checkpoint,
            plan_job=plan_job,
            managed_by=find_manager(found),
            reports=CheckpointStatus.model_validate((checkpoint or {}).get("status") or {}),
        )
        observation = with_ray_jobs(observation, self._owned(key, uid, Kind.RAY_JOB))
        cached = self._cache.children(key, Kind.POD)
        pods = select_pods(cached, plan_job, observation.ray_job)
        return replace(observation, pods=pods, attempt_pods=select_attempt_pods(cached, observation.created))

    def _owned(self, key: Key, uid: str, kind: Kind) -> list[Object]:
        return [child for child in self._cache.children(key, kind) if is_owned(child, uid)]

    def _parse(self, found: Object) -> TokenizationJob:
        """Parse the spec once per generation: most versions of a job differ only in their status."""
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

    async def _list_ray_jobs(self, observation: Observation) -> Observation:
        """List the RayJobs: the watch may not have delivered a new one yet, so absence in the cache proves nothing."""
        found = await self._kube.ray_jobs(observation.namespace, observation.job.metadata.name)
        owned = [each for each in found if is_owned(each, observation.uid)]
        for each in owned:
            self._cache.put(Kind.RAY_JOB, each)
        return with_ray_jobs(observation, owned)

    async def _read_head(self, observation: Observation, name: str) -> Observation:
        """Read the head Pod where the cache lacks it; where it is lost, the RayJobs: their watch may not have said yet
        that the attempt's was suspended, and its Pods are taken away."""
        if find_named(observation.pods, name) is None:
            found = await self._kube.pod(observation.namespace, name)
            observation = observation if found is None else replace(observation, pods=(*observation.pods, found))
        head = find_head(observation.pods)
        return observation if head is not None else await self._list_ray_jobs(observation)

    async def _check_account(self, observation: Observation, child: Object | None) -> Observation:
        """Check the ServiceAccount of the child's Pods, or of those that would be created next."""
        if child is None:
            account = image_of(observation.job, self._settings, None).service_account
        else:
            account = service_account_of(child)
        exists = await self._kube.has_service_account(observation.namespace, account)
        return replace(observation, has_service_account=exists)

    async def _read_events(self, observation: Observation, child: Object) -> Observation:
        """Read warnings about the child. They only explain a wait: if the request fails, the decision goes on."""
        names = frozenset(name for name in (child["metadata"]["name"], cluster_name(child)) if name)
        created = read_time(child["metadata"].get("creationTimestamp")) or observation.now
        since = max(created, observation.now - _WARNINGS_LAST)  # an earlier object may have had the same name
        namespace = observation.namespace
        try:
            warnings = await self._kube.events.warnings(namespace, names, since)
            read = await self._read_pod_events(replace(observation, warnings=warnings))
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            if namespace not in self._unreadable:
                self._unreadable.add(namespace)
                log.warning(
                    "cannot read the events of namespace %s, so no status shows why Pods cannot be created: %s. If the "
                    "API server denies access, give the operator the chart's role",
                    namespace,
                    describe_error(error),
                )
            return replace(observation, warnings_known=False)
        self._unreadable.discard(namespace)
        return read

    async def _read_pod_events(self, observation: Observation) -> Observation:
        """Read the events of a Pod that has waited longer than its limit for a node: one request per such wait."""
        wait, diagnosis = observation.status.wait, diagnose(observation.pods, ())
        if wait is None or diagnosis is None or diagnosis.limit_s is None or not diagnosis.pod:
            return observation
        if wait.reason != diagnosis.reason:
            return observation
        if (seconds_since(wait.since, observation.now) or 0.0) < diagnosis.limit_s:
            return observation
        return replace(observation, pod_events=await self._kube.events.of_pod(observation.namespace, diagnosis.pod))
