"""An API server in memory: versions, conflicts, owners, and watches whose news may come late.

What a real one does to the objects of this project and no more; that the operator agrees with a real one is shown by
the tests on the test bed.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tokenization_operator.decide.actions import Create, Delete, UpdateCheckpoint
from tokenization_operator.informer.cache import Cache, Key, job_of
from tokenization_operator.kube.client import Conflict, JobGone, NotOwned
from tokenization_operator.objects.kinds import WATCHED, Kind
from tokenization_operator.objects.merge import merge_patch
from tokenization_operator.objects.reading import Object, is_leaving
from tokenization_operator.observe.observation import KubeRay, PodEvent
from tokenization_worker.api.types.times import time_text

NAMESPACE = "team"


def apply_patch(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386, in place."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(name), dict):
                target[name] = {}
            apply_patch(target[name], value)
        else:
            target[name] = value


@dataclass
class FakeApi:
    """Objects of one namespace. `made`: every (kind, name) that was ever created, in order."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    made: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    news: deque[tuple[str, str, Object]] = field(default_factory=deque)
    kuberay: KubeRay = KubeRay.AVAILABLE
    accounts: set[str] = field(default_factory=lambda: {"tokenization-worker"})
    warnings: list[str] = field(default_factory=list)
    events_fail: Exception | None = None
    """Why events cannot be read."""
    pod_events: list[PodEvent] = field(default_factory=list)
    clock: Callable[[], datetime] = lambda: datetime(2026, 11, 22, 12, tzinfo=UTC)
    calls: int = 0
    before_delete: Callable[[str, Object], None] = lambda kind, item: None  # of what an operator deletes
    _versions: Any = field(default_factory=lambda: count(1))
    _uids: Any = field(default_factory=lambda: count(1))

    def create(self, kind: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if (kind, name) in self.objects:
            raise KeyError(name)
        made = copy.deepcopy(body)
        own = {"uid": f"uid-{next(self._uids)}", "generation": 1, "creationTimestamp": time_text(self.clock())}
        made["metadata"] |= {"namespace": NAMESPACE} | own
        self.made.append((kind, name))
        return self._store(kind, made)

    def edit(self, kind: str, name: str, patch: dict[str, Any], *, is_status: bool = False) -> Object:
        """Merge a patch; a change of the spec counts the generation up, a patch without a change makes no version."""
        before = self.objects[kind, name]
        item = copy.deepcopy(before)
        apply_patch(item, {"status": patch} if is_status else patch)
        if item == before:
            return item
        if item.get("spec") != before.get("spec"):
            item["metadata"]["generation"] += 1
        return self._store(kind, item)

    def delete(self, kind: str, name: str) -> None:
        """A RayJob has a finalizer of KubeRay's: it is there, and leaving, until `let_go`."""
        if kind != Kind.RAY_JOB:
            self.remove(kind, name)
        elif (kind, name) in self.objects:
            self.edit(kind, name, {"metadata": {"deletionTimestamp": time_text(self.clock())}})

    def let_go(self) -> None:
        """What is leaving is gone, and so is what belongs to an owner that is gone."""
        for (kind, name), item in list(self.objects.items()):
            uids = {each["metadata"]["uid"] for each in self.objects.values()}
            owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}
            leaves = item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers")
            if leaves or (owners and not owners & uids):
                self.remove(kind, name)

    def remove(self, kind: str, name: str) -> None:
        """Delete, and with it what it owns."""
        gone = self.objects.pop((kind, name), None)
        if gone is None:
            return
        self.news.append(("DELETED", kind, gone))
        uid = gone["metadata"]["uid"]
        for other, item in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences") or ()):
                self.remove(*other)

    def _store(self, kind: str, item: Object) -> Object:
        item["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[kind, item["metadata"]["name"]] = item
        self.news.append(("MODIFIED", kind, copy.deepcopy(item)))
        return copy.deepcopy(item)

    def of(self, kind: str) -> list[Object]:
        return [item for (found, _), item in self.objects.items() if found == kind]


class FakeKubeClient:
    """What `KubeClient` is to the reconciler, on a `FakeApi`. `dies_before`: calls until the operator is killed;
    `freezes_before`: calls until it stops, as a process does on SIGSTOP, until `thaw`.
    """

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.events = FakeEventRecorder(api, self._call)
        self.dies_before: int | None = None
        self.dies_before_making = ""
        self.freezes_before: int | None = None
        self.is_frozen = False
        self._thawed = asyncio.Event()

    def thaw(self) -> None:
        self._thawed.set()

    async def _freeze(self) -> None:
        if self.freezes_before is None:
            return
        self.freezes_before -= 1
        if self.freezes_before >= 0:
            return
        self.freezes_before, self.is_frozen = None, True
        await self._thawed.wait()
        self._thawed.clear()
        self.is_frozen = False

    async def _call(self, *, may_freeze: bool = True) -> None:
        """Between the last look at a job and a creation, the Lease has to keep a frozen operator from writing."""
        await asyncio.sleep(0)  # another task may run in between
        if may_freeze:
            await self._freeze()
        self.api.calls += 1
        if self.dies_before is not None:
            if not self.dies_before:
                raise Killed
            self.dies_before -= 1

    async def write_status(self, job: Object, status: dict[str, Any]) -> Object:
        await self._call()
        name = job["metadata"]["name"]
        there = self.api.objects.get((Kind.JOB, name))
        seen = job["metadata"]
        if there is None:
            raise JobGone
        if there["metadata"]["resourceVersion"] != seen["resourceVersion"]:
            raise Conflict
        return self.api.edit(Kind.JOB, name, merge_patch(job.get("status") or {}, status), is_status=True)

    async def require_current(self, job: Object) -> None:
        await self._call()
        there = self.api.objects.get((Kind.JOB, job["metadata"]["name"]))
        if there is None:
            raise JobGone
        if there["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]:
            raise Conflict(copy.deepcopy(there))

    async def create(self, wanted: Create, uid: str) -> Object:
        await self._call(may_freeze=False)
        name = wanted.body["metadata"]["name"]
        if wanted.kind == self.dies_before_making:
            raise Killed
        there = self.api.objects.get((wanted.kind, name))
        if there is None:
            return self.api.create(wanted.kind, wanted.body)
        if is_leaving(there):
            raise Conflict
        if not any(owner["uid"] == uid for owner in there["metadata"].get("ownerReferences") or ()):
            raise NotOwned(name)
        return copy.deepcopy(there)

    async def update_checkpoint(self, wanted: UpdateCheckpoint, uid: str, known: Object | None) -> Object:
        found = await self.create(Create(Kind.CHECKPOINT, wanted.body), uid)
        changes = wanted.changes(found)
        if not changes:
            return found
        await self._call()
        there = self.api.objects.get((Kind.CHECKPOINT, found["metadata"]["name"]))
        if there is None or there["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict
        return self.api.edit(Kind.CHECKPOINT, found["metadata"]["name"], {"spec": changes})

    async def delete(self, wanted: Delete, namespace: str) -> None:
        await self._call()
        there = self.api.objects.get((wanted.kind, wanted.name))
        if there is None:
            return
        exactly = there["metadata"]["uid"], wanted.resource_version or there["metadata"]["resourceVersion"]
        if exactly != (wanted.uid, there["metadata"]["resourceVersion"]):
            raise Conflict
        self.api.before_delete(wanted.kind, copy.deepcopy(there))
        self.api.delete(wanted.kind, wanted.name)

    async def read(self, kind: Kind, namespace: str, name: str) -> Object | None:
        await self._call()
        return copy.deepcopy(self.api.objects.get((kind, name)))

    async def ray_jobs(self, namespace: str, job: str) -> list[Object]:
        await self._call()
        return [copy.deepcopy(each) for each in self.api.of(Kind.RAY_JOB)]

    async def pod(self, namespace: str, name: str) -> Object | None:
        await self._call()
        return copy.deepcopy(self.api.objects.get((Kind.POD, name)))

    async def has_service_account(self, namespace: str, name: str) -> bool:
        await self._call()
        return name in self.api.accounts

    async def kuberay(self, namespace: str) -> KubeRay:
        return self.api.kuberay


class FakeEventRecorder:
    """What `EventRecorder` is; `call`: of the cluster that has it."""

    def __init__(self, api: FakeApi, call: Callable[[], Awaitable[None]]) -> None:
        self._api = api
        self._call = call

    async def warnings(self, namespace: str, names: frozenset[str], since: datetime) -> tuple[str, ...]:
        await self._call()
        if self._api.events_fail is not None:
            raise self._api.events_fail
        return tuple(self._api.warnings)

    async def of_pod(self, namespace: str, name: str) -> tuple[PodEvent, ...]:
        await self._call()
        if self._api.events_fail is not None:
            raise self._api.events_fail
        return tuple(self._api.pod_events)

    async def post(self, job: Object, kind: str, reason: str, message: str) -> None:
        await self._call()
        self._api.events.append((reason, message))


class Killed(BaseException):
    """The operator's process is gone."""


def deliver(api: FakeApi, cache: Cache, most: int | None = None) -> set[Key]:
    """Give the oldest news to a cache; the jobs that they are about."""
    keys: set[Key] = set()
    for _ in range(len(api.news) if most is None else min(most, len(api.news))):
        what, kind, item = api.news.popleft()
        if kind not in WATCHED:
            continue
        (cache.drop if what == "DELETED" else cache.put)(kind, item)
        key = (NAMESPACE, item["metadata"]["name"]) if kind == Kind.JOB else job_of(item)
        if key is not None:
            keys.add(key)
    return keys
