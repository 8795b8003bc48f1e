"""The API server, as the operator uses it: few calls, raw objects. All I/O of the operator but the watches is here."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.decide import Create, Delete, Kind, Point
from tokenization_operator.merge import merge_patch
from tokenization_operator.observation import KubeRay, Object
from tokenization_worker.api.job import API_GROUP, API_VERSION

_VERSION = API_VERSION.partition("/")[2]
PLACES = {
    Kind.JOB: (API_GROUP, _VERSION, "tokenizationjobs"),
    Kind.CHECKPOINT: (API_GROUP, _VERSION, "tokenizationcheckpoints"),
    Kind.PLAN_JOB: ("batch", "v1", "jobs"),
    Kind.RAY_JOB: ("ray.io", "v1", "rayjobs"),
}
_MERGE = "application/merge-patch+json"
_KUBERAY_LOOK_S = 60.0
_TIMEOUT_S = 30.0
EVENT_SOURCE = "tokenization-operator"


class Conflict(Exception):
    """Somebody else has written first: look again."""


class Foreign(Exception):
    """An object of that name belongs to somebody else."""


class Cluster:
    """Calls of one operator."""

    def __init__(self, api: client.ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._custom: Any = client.CustomObjectsApi(api)  # its answers are objects as they came
        self._core: Any = client.CoreV1Api(api)
        self._clock = clock
        self._kuberay: tuple[float, KubeRay] | None = None

    async def write_status(self, job: Object, status: dict[str, Any]) -> Object:
        """Replace the status of exactly the job that was seen; the job as it is then. Raises `Conflict`."""
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
                    _request_timeout=_TIMEOUT_S,
                )
            )
        except ApiException as error:
            if error.status in (404, 409):
                raise Conflict from error
            raise

    async def require_current(self, job: Object) -> None:
        """Raise `Conflict` unless the job is what was seen: children are not made on the word of an old sight."""
        metadata = job["metadata"]
        there = await self._read(Kind.JOB, metadata["namespace"], metadata["name"])
        if there is None or there["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict

    async def create(self, wanted: Create, uid: str) -> Object:
        """Make a child, or take the one that is there if the job owns it; raises `Foreign`."""
        metadata = wanted.body["metadata"]
        place = self._of(wanted.kind, metadata["namespace"])
        try:
            return dict(
                await self._custom.create_namespaced_custom_object(*place, wanted.body, _request_timeout=_TIMEOUT_S)
            )
        except ApiException as error:
            if error.status != 409:
                raise
        found = await self._read(wanted.kind, metadata["namespace"], metadata["name"])
        if found is None or found["metadata"].get("deletionTimestamp"):
            raise Conflict
        if not any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or ()):
            raise Foreign(f"{wanted.kind} {metadata['name']}")
        return found

    async def point(self, wanted: Point, uid: str) -> Object:
        """Make the checkpoint, or set fields of the spec of the one that is there; raises `Foreign`."""
        found = await self.create(Create(Kind.CHECKPOINT, wanted.body), uid)
        spec = found["spec"]
        changes = merge_patch({name: spec.get(name) for name in wanted.fields if name in spec}, wanted.fields)
        if not changes:
            return found
        metadata = wanted.body["metadata"]
        return dict(
            await self._custom.patch_namespaced_custom_object(
                *self._of(Kind.CHECKPOINT, metadata["namespace"]),
                metadata["name"],
                {"spec": changes},
                _content_type=_MERGE,
                _request_timeout=_TIMEOUT_S,
            )
        )

    async def delete(self, wanted: Delete, namespace: str) -> None:
        """Delete exactly that object, if it is still there; what it owns goes with it."""
        body = client.V1DeleteOptions(
            propagation_policy="Background", preconditions=client.V1Preconditions(uid=wanted.uid)
        )
        try:
            await self._custom.delete_namespaced_custom_object(
                *self._of(wanted.kind, namespace), wanted.name, body=body, _request_timeout=_TIMEOUT_S
            )
        except ApiException as error:
            if error.status not in (404, 409):
                raise

    async def has_service_account(self, namespace: str, name: str) -> bool:
        try:
            await self._core.read_namespaced_service_account(name, namespace, _request_timeout=_TIMEOUT_S)
        except ApiException as error:
            if error.status != 404:
                raise
            return False
        return True

    async def warnings(self, namespace: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """What events say of objects whose Pods could not be made."""
        found: list[str] = []
        for name in names:
            selector = f"involvedObject.name={name},type=Warning"
            events = await self._core.list_namespaced_event(
                namespace, field_selector=selector, limit=20, _request_timeout=_TIMEOUT_S
            )
            found += [event.message for event in events.items if event.reason in _CREATE_FAILED and event.message]
        return tuple(dict.fromkeys(found))

    async def kuberay(self, namespace: str) -> KubeRay:
        """Whether RayJobs can be had whose dashboards are locked; looked at once a minute."""
        now = self._clock()
        if self._kuberay is None or now - self._kuberay[0] > _KUBERAY_LOOK_S:
            self._kuberay = now, await self._look_at_kuberay(namespace)
        return self._kuberay[1]

    async def _look_at_kuberay(self, namespace: str) -> KubeRay:
        """A CRD from before 1.6 prunes the field without a word, and an open dashboard runs anybody's code."""
        try:
            made = await self._custom.create_namespaced_custom_object(
                *self._of(Kind.RAY_JOB, namespace), _PROBE, dry_run="All", _request_timeout=_TIMEOUT_S
            )
        except ApiException as error:
            if error.status != 404:
                raise
            return KubeRay.MISSING
        has_field = "authOptions" in (made.get("spec") or {}).get("rayClusterSpec", {})
        return KubeRay.THERE if has_field else KubeRay.TOO_OLD

    async def post_event(self, job: Object, kind: str, reason: str, message: str) -> None:
        """Say something about a job where `kubectl describe` shows it."""
        metadata = job["metadata"]
        moment = datetime.now(UTC)
        body = client.CoreV1Event(
            metadata=client.V1ObjectMeta(generate_name=f"{metadata['name']}-", namespace=metadata["namespace"]),
            involved_object=client.V1ObjectReference(
                api_version=API_VERSION,
                kind=str(Kind.JOB),
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
            ),
            type=kind,
            reason=reason,
            message=message[:1024],
            source=client.V1EventSource(component=EVENT_SOURCE),
            first_timestamp=moment,
            last_timestamp=moment,
            count=1,
        )
        await self._core.create_namespaced_event(metadata["namespace"], body, _request_timeout=_TIMEOUT_S)

    async def _read(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return dict(
                await self._custom.get_namespaced_custom_object(
                    *self._of(kind, namespace), name, _request_timeout=_TIMEOUT_S
                )
            )
        except ApiException as error:
            if error.status != 404:
                raise
            return None

    def _of(self, kind: Kind, namespace: str) -> tuple[str, str, str, str]:
        group, version, plural = PLACES[kind]
        return group, version, namespace, plural


_CREATE_FAILED = frozenset({"FailedCreate", "FailedToCreateHeadPod", "FailedToCreateWorkerPod"})
_PROBE: Object = {
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
