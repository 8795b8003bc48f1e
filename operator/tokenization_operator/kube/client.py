"""The operator's API client: a few calls on raw objects. With `event_recorder`, all I/O except watches and the
Lease."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.decide.actions import Create, Delete, UpdateCheckpoint
from tokenization_operator.kube.accounts import Accounts
from tokenization_operator.kube.api_errors import TIMEOUT_S, describe_error, is_locked, is_malformed, is_refusal
from tokenization_operator.kube.event_recorder import EventRecorder
from tokenization_operator.kube.fence import Fence
from tokenization_operator.kube.paging import WHOLE, ask_of, pages
from tokenization_operator.objects.kinds import PLACES, Kind, list_path
from tokenization_operator.objects.merge import merge_patch
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.objects.reading import Object, is_leaving, is_owned
from tokenization_operator.observe.observation import KubeRay

T = TypeVar("T")

_MERGE = "application/merge-patch+json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_KUBERAY_CHECK_S = 60.0
_KUBERAY_RETRY_S = 10.0
_NOT_SERVED = frozenset({404, 405})
"""Status codes for creating an object whose CustomResourceDefinition is deleted or about to be."""


class Conflict(Exception):
    """The object has changed: reconcile again. `current`: the job as it is now, if known."""

    def __init__(self, current: Object | None = None) -> None:
        super().__init__()
        self.current = current


class JobGone(Exception):
    """The job no longer exists."""


class NotOwned(Exception):
    """An object with this name exists, and the job does not own it."""


class Forbidden(Exception):
    """The operator may not list a kind; the message names it."""


class Rejected(Exception):
    """The API server rejects an object; the message is the API server's own."""


class KubeClient:
    """Sends the requests of one operator. Every write raises `NotLeading` while the fence is closed."""

    def __init__(
        self, api: client.ApiClient, clock: Callable[[], float] = time.monotonic, fence: Fence | None = None
    ) -> None:
        self._api: Any = api
        self._custom: Any = client.CustomObjectsApi(api)  # it returns raw objects
        self._core: Any = client.CoreV1Api(api)
        self._clock = clock
        self._kuberay: tuple[float, KubeRay] | None = None
        self.accounts = Accounts(self._has_service_account, clock)
        self._fence = fence or Fence()
        self.events = EventRecorder(self._core, clock, self._fence)

    async def write_status(self, job: Object, status: dict[str, Any]) -> Object:
        """Replace the status of exactly this version of the job; return the new job. Raises `Conflict`, `JobGone`."""
        metadata = job["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]},
            "status": merge_patch(job.get("status") or {}, status),
        }
        try:
            return dict(
                await self._custom.patch_namespaced_custom_object_status(
                    *self._of(Kind.JOB, metadata["namespace"]),
                    metadata["name"],
                    body,
                    _content_type=_MERGE,
                    _request_timeout=self._write_s(),
                )
            )
        except ApiException as error:
            if error.status == 404:
                raise JobGone from error
            if error.status == 409:
                raise Conflict from error
            raise

    async def require_current(self, job: Object) -> None:
        """Raise `Conflict` or `JobGone` if the job has changed. Never create or delete from a stale read."""
        metadata = job["metadata"]
        current = await self.read(Kind.JOB, metadata["namespace"], metadata["name"])
        if current is None:
            raise JobGone
        if current["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(current)

    async def create(self, wanted: Create, uid: str) -> Object:
        """Create a child, or return the existing one if the job owns it. Raises `NotOwned`, `Rejected`, `Conflict`."""
        metadata = wanted.body["metadata"]
        place = self._of(wanted.kind, metadata["namespace"])
        for trial in wanted.trials:
            await self._try(trial)
        try:
            made = await self._custom.create_namespaced_custom_object(
                *place, wanted.body, _request_timeout=self._write_s()
            )
            return await self._require_locked(made) if wanted.kind is Kind.RAY_JOB else dict(made)
        except ApiException as error:
            if wanted.kind is Kind.RAY_JOB and error.status in _NOT_SERVED:
                self._kuberay = self._clock(), KubeRay.MISSING
                raise Conflict from error
            if is_refusal(error):
                raise Rejected(describe_error(error)) from error
            if error.status != 409:
                raise
        found = await self.read(wanted.kind, metadata["namespace"], metadata["name"])
        if found is None or is_leaving(found):
            raise Conflict
        if not is_owned(found, uid):
            raise NotOwned(f"{wanted.kind} {metadata['name']}")
        return found

    async def _try(self, job: Object) -> None:
        """Create a Job in a dry run. Raises `Rejected` if its Pod is malformed or has an unknown field.

        Any other refusal says nothing about the Pods of the real child.
        """
        asked = self._custom.create_namespaced_custom_object(
            *self._of(Kind.PLAN_JOB, job["metadata"]["namespace"]),
            job,
            dry_run="All",
            field_validation="Strict",
            _request_timeout=self._write_s(),
        )
        try:
            await asked
        except ApiException as error:
            if is_malformed(error):
                raise Rejected(f"Pod of {job['metadata']['name']}: {describe_error(error)}") from error

    async def _require_locked(self, ray_job: Object) -> Object:
        """Delete a RayJob whose dashboard would run code from anyone, and raise `Rejected`."""
        if is_locked(ray_job):
            return ray_job
        metadata = ray_job["metadata"]
        await self.delete(Delete(Kind.RAY_JOB, metadata["name"], metadata["uid"]), metadata["namespace"])
        raise Rejected("KubeRay's CustomResourceDefinitions drop authOptions: upgrade them to 1.6 or newer")

    async def update_checkpoint(self, wanted: UpdateCheckpoint, uid: str, known: Object | None) -> Object:
        """Create the checkpoint, or update fields of its spec. Raises `NotOwned`, `Conflict`.

        `known`: the cached checkpoint, which may be older than the stored one but never newer.
        """
        if known is not None and not is_leaving(known) and (changes := wanted.changes(known)):
            with suppress(Conflict):
                return await self._patch_checkpoint(known, changes)
        found = await self.create(Create(Kind.CHECKPOINT, wanted.body), uid)
        changes = wanted.changes(found)
        return await self._patch_checkpoint(found, changes) if changes else found

    async def _patch_checkpoint(self, found: Object, changes: dict[str, Any]) -> Object:
        """Patch the spec of exactly this version of the checkpoint. Raises `Conflict`."""
        metadata = found["metadata"]
        asked = self._custom.patch_namespaced_custom_object(
            *self._of(Kind.CHECKPOINT, metadata["namespace"]),
            metadata["name"],
            {"metadata": {name: metadata[name] for name in ("resourceVersion", "uid")}, "spec": changes},
            _content_type=_MERGE,
            _request_timeout=self._write_s(),
        )
        try:
            return dict(await asked)
        except ApiException as error:
            if error.status not in (404, 409):  # deleted with its job, or changed by another writer
                raise
            raise Conflict from error

    async def list_all(
        self,
        kind: Kind,
        namespace: str | None,
        labels: str = "",
        *,
        only_metadata: bool = False,
        on_version: Callable[[str], None] = lambda version: None,
    ) -> AsyncIterator[Object]:
        """List the objects of a kind in one namespace, or in all if None. Raises `Forbidden`.

        `on_version`: as for `pages`.
        """
        ask = ask_of(
            self._api, list_path(kind, namespace), {"labelSelector": labels}, _METADATA if only_metadata else WHOLE
        )
        try:
            async for page in pages(ask, on_version=on_version):
                for item in page:
                    yield item
        except ApiException as error:
            if error.status == 404:  # the kind was deleted with all its objects
                return
            if error.status not in (401, 403):
                raise
            raise Forbidden(f"the operator may not list {PLACES[kind].plural}: {describe_error(error)}") from error

    async def ray_jobs(self, namespace: str, job: str) -> list[Object]:
        """List the RayJobs with the job's label; empty without KubeRay."""
        ask = ask_of(self._api, list_path(Kind.RAY_JOB, namespace), {"labelSelector": f"{JOB_LABEL}={job}"})
        found = await _or_none(ask({}))
        if found is None:
            self._kuberay = self._clock(), KubeRay.MISSING
        return list((found or {}).get("items") or ())

    async def read(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read an object; None if it does not exist."""
        asked = self._custom.get_namespaced_custom_object(*self._of(kind, namespace), name, _request_timeout=TIMEOUT_S)
        found = await _or_none(asked)
        return None if found is None else dict(found)

    async def pod(self, namespace: str, name: str) -> Object | None:
        """Read a Pod; None if it does not exist."""
        found = await _or_none(self._core.read_namespaced_pod(name, namespace, _request_timeout=TIMEOUT_S))
        return None if found is None else dict(self._core.api_client.sanitize_for_serialization(found))

    async def delete(self, wanted: Delete, namespace: str) -> None:
        """Delete exactly this version of an object and what it owns; success if it no longer exists.

        Raises `Conflict` if the object has changed, or if another object now has its name.
        """
        exactly = client.V1Preconditions(uid=wanted.uid, resource_version=wanted.resource_version)
        body = client.V1DeleteOptions(propagation_policy="Background", preconditions=exactly)
        try:
            await self._custom.delete_namespaced_custom_object(
                *self._of(wanted.kind, namespace), wanted.name, body=body, _request_timeout=self._write_s()
            )
        except ApiException as error:
            if error.status == 409:
                raise Conflict from error
            if error.status != 404:
                raise

    def _write_s(self) -> float:
        """The timeout of a write. Raises `NotLeading`."""
        return self._fence.left_s(TIMEOUT_S)

    async def has_service_account(self, namespace: str, name: str) -> bool:
        """Whether Pods can be created with this account; the answer may be some seconds old."""
        return await self.accounts.exists(namespace, name)

    async def _has_service_account(self, namespace: str, name: str) -> bool:
        asked = self._core.read_namespaced_service_account(name, namespace, _request_timeout=TIMEOUT_S)
        return await _or_none(asked) is not None

    async def kuberay(self, namespace: str) -> KubeRay:
        """Whether KubeRay serves RayJobs with locked dashboards. Checked once a minute, more often while not."""
        now = self._clock()
        known = self._kuberay
        if known is None or now - known[0] > (_KUBERAY_CHECK_S if known[1] is KubeRay.AVAILABLE else _KUBERAY_RETRY_S):
            known = self._kuberay = now, await self._check_kuberay(namespace)
        return known[1]

    async def _check_kuberay(self, namespace: str) -> KubeRay:
        """Create a RayJob in a dry run. A CRD from before 1.6 silently prunes the field, and an open dashboard runs
        code from anyone."""
        asked = self._custom.create_namespaced_custom_object(
            *self._of(Kind.RAY_JOB, namespace), _DRY_RUN, dry_run="All", _request_timeout=TIMEOUT_S
        )
        try:
            made = await asked
        except ApiException as error:
            if error.status in _NOT_SERVED:
                return KubeRay.MISSING
            if not is_refusal(error):
                raise
            return KubeRay.AVAILABLE  # a policy rejects the dry run; only its verdict on a real RayJob counts
        return KubeRay.AVAILABLE if is_locked(made) else KubeRay.TOO_OLD

    def _of(self, kind: Kind, namespace: str) -> tuple[str, str, str, str]:
        group, version, plural = PLACES[kind]
        return group, version, namespace, plural


async def _or_none(asked: Awaitable[T]) -> T | None:
    """The answer; None for 404."""
    try:
        return await asked
    except ApiException as error:
        if error.status != 404:
            raise
        return None


_DRY_RUN: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"generateName": "tokenization-probe-"},
    "spec": {
        "entrypoint": "true",
        "rayClusterSpec": {
            "authOptions": {"mode": "token"},
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "ray-head", "image": "none"}]}},
            },
        },
    },
}
