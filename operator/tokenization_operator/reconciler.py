"""The reconcile loop for one job: observe, decide, write the status, apply the actions, report what has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client.exceptions import ApiException
from pydantic import ValidationError

from tokenization_operator.decide.actions import Action, Create, Decision, Delete, UpdateCheckpoint, deletion
from tokenization_operator.decide.context import NOT_MADE
from tokenization_operator.decide.next_step import SOON_S, decide, not_made, released
from tokenization_operator.decide.pending import EVENT, HOW_TO_BEGIN_IT
from tokenization_operator.decide.status.unknown_fields import keep_unknown_fields
from tokenization_operator.decide.unsupported import REASON, unsupported_status
from tokenization_operator.informer.cache import Cache, Key
from tokenization_operator.informer.observer import Observer
from tokenization_operator.kube.api_errors import describe_error
from tokenization_operator.kube.client import Conflict, JobGone, KubeClient, NotOwned, Rejected
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, has_ended, is_leaving, is_owned
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.pod_diagnosis import DIAGNOSES
from tokenization_operator.settings import Settings
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.errors import SpecError

log = logging.getLogger(__name__)

_CONFLICT_S = 0.1

_ORPHANS = "orphan"
"""The finalizer of `kubectl delete --cascade=orphan`."""

_STEPS = (StatusReason.RUN_STARTED, StatusReason.ATTEMPT_STARTED)
"""Reasons that last for one reconcile only and post no event: the next reason says more."""


class Reconciler:
    """Reconciles one job per call. Holds no state that a restart would lose."""

    def __init__(
        self,
        cache: Cache,
        kube: KubeClient,
        settings: Settings,
        metrics: Metrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cache = cache
        self._kube = kube
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._observer = Observer(cache, kube, settings, now)

    async def reconcile(self, key: Key) -> float | None:
        """Take the job's next step. Returns the seconds until the next call, or None to wait for an event."""
        found = self._cache.get(Kind.JOB, *key)
        if found is None or is_leaving(found):
            self._observer.forget(key)
        if found is None:
            return None
        try:
            return await (self._stop(found) if is_leaving(found) else self._take_step(found))
        except Conflict as conflict:
            if conflict.current is not None:
                self._cache.put(Kind.JOB, conflict.current)
            return _CONFLICT_S
        except JobGone:
            self._cache.drop(Kind.JOB, found)
            return None
        finally:
            if self._cache.is_at_rest(key):
                self._observer.forget(key)  # it may exist for months and is rarely reconciled

    async def _stop(self, found: Object) -> None:
        """Delete the RayJob and the plan Job of a deleted job that still exists, and say so in its status.

        Kubernetes deletes them together with the job, but another tool's finalizer may keep the job for hours. A job
        deleted with `--cascade=orphan` keeps its children.
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
        if metadata.get("finalizers"):
            await self._report_released(found)

    async def _report_released(self, found: Object) -> None:
        try:
            observation = self._observer.observe_cached(found)
        except (SpecError, ValidationError):
            return  # `NotUnderstood` stays true
        status = released(observation, self._settings, found["metadata"]["finalizers"])
        if status is not None:
            await self._report(found, await self._write(found, status), observation, status)

    async def _take_step(self, found: Object) -> float | None:
        try:
            observation = await self._observer.observe(found)
        except (SpecError, ValidationError) as error:
            await self._report_unsupported(found, error)
            return None
        return await self._apply(decide(observation, self._settings), found, observation)

    async def _apply(self, decision: Decision, found: Object, observation: Observation) -> float | None:
        """Write the status first, then apply the actions in order, then report what has changed.

        A decision whose actions are refused is not reported: only the refusal is.
        """
        written = await self._write(found, decision.status)
        try:
            await self._act(decision.actions, observation, written)
        except (Rejected, NotOwned) as error:
            refusal = _refusal(error, observation, decision)
            refused = await self._write(written, refusal)
            await self._report(found, refused, observation, refusal)
            return SOON_S if decision.requeue_after_s is None else min(SOON_S, decision.requeue_after_s)
        except Exception:
            await self._report(found, written, observation, decision.status)  # the next reconcile sees no change
            raise
        await self._report(found, written, observation, decision.status)
        return decision.requeue_after_s

    async def _act(self, actions: tuple[Action, ...], observation: Observation, found: Object) -> None:
        if actions:
            await self._kube.require_current(found)
        for action in actions:
            await self._do(action, observation, found)

    async def _report_unsupported(self, found: Object, error: Exception) -> None:
        status = unsupported_status(found, error, self._now())
        if status is None or status == found.get("status"):
            return
        metadata = found["metadata"]
        log.error("%s", status["message"], extra={"job": f"{metadata['namespace']}/{metadata['name']}"})
        found = await self._store(found, status)
        await self._kube.events.post(found, "Warning", REASON, status["message"])

    async def _store(self, found: Object, status: dict[str, Any]) -> Object:
        """Replace the job's status and return the stored job. Raises `Conflict`, `JobGone`."""
        found = await self._kube.write_status(found, status)
        self._cache.put(Kind.JOB, found)
        return found

    async def _write(self, found: Object, after: JobStatus) -> Object:
        """Write the status if it has changed, and return the stored job; `found` itself if it has not."""
        stored = found.get("status") or {}
        status = keep_unknown_fields(stored, after.model_dump(mode="json", by_alias=True, exclude_none=True))
        return found if status == stored else await self._store(found, status)

    async def _report(self, before_write: Object, found: Object, observation: Observation, after: JobStatus) -> None:
        """Report a status in metrics, log and events if it was written."""
        if found is before_write:
            return
        before = observation.status
        plan_job = observation.plan_job
        plan_began = plan_job["metadata"].get("creationTimestamp") if plan_job else None
        self._metrics.wrote(before, after, observation.now, plan_began)
        if (before.phase, before.reason) != (after.phase, after.reason):
            await self._report_transition(found, observation, after)
        pending = after.attempt.pending_changes if after.attempt and not after.attempt.is_over else None
        if pending and not (before.attempt and before.attempt.pending_changes == pending):
            await self._kube.events.post(found, "Normal", EVENT, f"{pending}; {HOW_TO_BEGIN_IT}")
        if after.phase in (Phase.SUCCEEDED, Phase.FAILED) and before.phase is not after.phase:
            await self._report_ttl_ignored(found, observation)

    async def _report_transition(self, found: Object, observation: Observation, after: JobStatus) -> None:
        """Log, count and post a change of phase or reason."""
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
        if after.reason not in _STEPS:
            kind = "Warning" if is_bad else "Normal"
            await self._kube.events.post(found, kind, after.reason or "", after.message or "")

    async def _report_ttl_ignored(self, found: Object, observation: Observation) -> None:
        if observation.managed_by and observation.job.spec.ttl_seconds_after_finished is not None:
            words = f"ttlSecondsAfterFinished is ignored: {observation.managed_by} would create the job again"
            await self._kube.events.post(found, "Normal", StatusReason.TTL_IGNORED, words)

    async def _do(self, action: Action, observation: Observation, found: Object) -> None:
        match action:
            case Create(is_optional=True):
                await self._try_to_create(action, observation)
            case Create():
                self._cache.put(action.kind, await self._kube.create(action, action.owner_uid))
            case UpdateCheckpoint():
                updated = await self._kube.update_checkpoint(action, observation.uid, observation.checkpoint)
                self._cache.put(Kind.CHECKPOINT, updated)
            case Delete(kind=Kind.JOB):
                await self._kube.delete(deletion(Kind.JOB, found), observation.namespace)
            case Delete():
                await self._delete(action, observation.namespace)

    async def _try_to_create(self, action: Create, observation: Observation) -> None:
        name = action.body["metadata"]["name"]
        try:
            await self._kube.create(action, action.owner_uid)
        except (Rejected, NotOwned, Conflict, ApiException, aiohttp.ClientError, TimeoutError) as error:
            key, words = f"{observation.namespace}/{observation.job.metadata.name}", describe_error(error)
            log.warning("the job goes on without %s %s: %s", action.kind, name, words, extra={"job": key})

    async def _delete(self, wanted: Delete, namespace: str) -> None:
        """Re-read a child and delete it. Raises `Conflict` if it has changed since the decision."""
        current = await self._kube.read(wanted.kind, namespace, wanted.name)
        if current is None or current["metadata"]["uid"] != wanted.uid:
            self._cache.forget(wanted.kind, namespace, wanted.name, wanted.uid)  # its watch may never report this
        elif current["metadata"]["resourceVersion"] != wanted.resource_version:
            self._cache.put(wanted.kind, current)
            raise Conflict
        else:
            await self._kube.delete(wanted, namespace)


def _refusal(error: Rejected | NotOwned, observation: Observation, decision: Decision) -> JobStatus:
    """The status of a job whose child the API server refuses, or has for another owner."""
    if isinstance(error, Rejected):
        return not_made(observation, decision.status, StatusReason.CLUSTER_REJECTED, str(error))
    words = f"{error} has another owner: delete it, or give this job another name"
    return not_made(observation, decision.status, StatusReason.NAME_TAKEN, words)
