"""Caches the objects that the watches delivered, so that a reconcile needs no request. Values only; no I/O.

Objects are pruned first: 300 jobs have 3,000 objects, and the operator needs little of their text.
A created object is put in at once: its event may arrive after the next reconcile. Objects of a job at rest are stored
compressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tokenization_operator.decide.finished import is_at_rest
from tokenization_operator.informer.packed import pack, unpack
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.api.status import Phase

Key = tuple[str, str]
"""Namespace and name of a job."""


class _Brief(NamedTuple):
    """The fields of a job that are readable without unpacking. `created`: as Kubernetes writes it."""

    namespace: str
    name: str
    phase: Phase | str
    created: str


@dataclass(slots=True)
class _Entry:
    """An object, whole or packed. `owner`: its job."""

    uid: str
    version: str
    owner: Key | None
    brief: _Brief | None
    kept: Object | bytes

    def read(self) -> Object:
        kept = self.kept  # another thread may read while this one packs
        return unpack(kept) if isinstance(kept, bytes) else kept

    def pack(self) -> None:
        if not isinstance(self.kept, bytes):
            self.kept = pack(self.kept)

    def unpack(self) -> None:
        self.kept = self.read()


class Cache:
    """Objects by kind, namespace and name; children also by their job."""

    def __init__(self) -> None:
        self._kinds: defaultdict[str, dict[Key, _Entry]] = defaultdict(dict)
        self._children: defaultdict[Key, set[tuple[str, Key]]] = defaultdict(set)
        self._at_rest: set[Key] = set()

    def put(self, kind: str, item: Object) -> bool:
        """Store an object. Returns False if this version or a newer one is stored already."""
        place, metadata = _place(item), item["metadata"]
        entries = self._kinds[kind]
        old = entries.get(place)
        uid, version = metadata["uid"], str(metadata.get("resourceVersion", ""))
        if old is not None and old.uid == uid and _is_known(version, old.version):
            return False
        owner = place if kind == Kind.JOB else job_of(item)
        if old is not None and old.owner != owner:
            self.forget(kind, *place, old.uid)
        brief = _brief(item) if kind == Kind.JOB else None
        entry = entries[place] = _Entry(uid, version, owner, brief, prune(kind, item))
        if kind == Kind.JOB:
            self._note_rest(place, is_now=is_at_rest(item))
        elif owner is not None:
            self._children[owner].add((kind, place))
        if owner in self._at_rest:
            entry.pack()
        return True

    def _note_rest(self, key: Key, *, is_now: bool) -> None:
        """Pack the children of a job that comes to rest, or unpack those of a job that leaves it."""
        if is_now == (key in self._at_rest):
            return
        (self._at_rest.add if is_now else self._at_rest.discard)(key)
        for kind, place in self._children.get(key, ()):
            entry = self._kinds[kind][place]
            (entry.pack if is_now else entry.unpack)()

    def drop(self, kind: str, item: Object) -> None:
        """Remove a deleted object, unless a later object has its name."""
        self.forget(kind, *_place(item), item["metadata"]["uid"])

    def forget(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Remove an object by kind, name and UID."""
        place = (namespace, name)
        old = self._kinds[kind].get(place)
        if old is None or old.uid != uid:
            return
        del self._kinds[kind][place]
        if kind == Kind.JOB:
            self._note_rest(place, is_now=False)
        elif old.owner is not None:
            self._children[old.owner].discard((kind, place))
            if not self._children[old.owner]:
                del self._children[old.owner]

    def uids(self, kind: str) -> list[tuple[str, str, str]]:
        """Namespace, name and UID of all objects of a kind."""
        return [(*place, entry.uid) for place, entry in self._kinds[kind].items()]

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        entry = self._kinds[kind].get((namespace, name))
        return None if entry is None else entry.read()

    def jobs(self) -> list[Key]:
        return list(self._kinds[Kind.JOB])

    def is_at_rest(self, key: Key) -> bool:
        """Whether the job has ended and its spec has not changed since."""
        return key in self._at_rest

    def briefs(self) -> list[Object]:
        """All jobs, with only names, creation times and phases. Safe to call from another thread."""
        briefs = [entry.brief for entry in list(self._kinds[Kind.JOB].values()) if entry.brief is not None]
        return [
            {
                "metadata": {"namespace": each.namespace, "name": each.name, "creationTimestamp": each.created},
                "status": {"phase": each.phase},
            }
            for each in briefs
        ]

    def children(self, key: Key, kind: str) -> list[Object]:
        """The children of a job, by name."""
        return [self._kinds[kind][place].read() for place in sorted(self._places(key, kind))]

    def _places(self, key: Key, kind: str) -> Iterator[Key]:
        return (place for found, place in self._children.get(key, ()) if found == kind)


def job_of(item: Object) -> Key | None:
    """The job that an object belongs to: its controller, or for Pods of children the job in its label."""
    metadata = item["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == Kind.JOB and owner.get("apiVersion") == API_VERSION:
            return metadata["namespace"], owner["name"]
    name = (metadata.get("labels") or {}).get(JOB_LABEL)
    return None if name is None else (metadata["namespace"], name)


def _place(item: Object) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _brief(job: Object) -> _Brief:
    phase = str((job.get("status") or {}).get("phase") or Phase.PENDING)
    return _Brief(*_place(job), _PHASES.get(phase, phase), job["metadata"].get("creationTimestamp", ""))


_PHASES = {str(phase): phase for phase in Phase}


def _is_known(version: str, other: str) -> bool:
    """Compare versions of one object, which increase (promised since Kubernetes 1.35; etcd always did so)."""
    return version.isdecimal() and other.isdecimal() and int(version) <= int(other)


_OF_CONTAINERS = ("resources",)
_OF_RAY_JOBS = ("suspend",)
_OF_RAY_CLUSTERS = ("headGroupSpec",)
_CLUSTER_STATUS = "rayClusterStatus"


def prune(kind: str, item: Object) -> Object:
    """Drop `managedFields`; keep of a Pod's spec the containers' resources, and of a RayJob's the head group and
    `suspend`."""
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    found = {**item, "metadata": metadata}
    spec = item.get("spec") or {}
    if kind == Kind.POD:
        containers = [
            {name: each[name] for name in _OF_CONTAINERS if name in each} for each in spec.get("containers") or ()
        ]
        found["spec"] = {"containers": containers}
    elif kind == Kind.RAY_JOB:
        cluster = spec.get("rayClusterSpec") or {}
        kept = {name: cluster[name] for name in _OF_RAY_CLUSTERS if name in cluster}
        found["spec"] = {name: spec[name] for name in _OF_RAY_JOBS if name in spec} | {"rayClusterSpec": kept}
        found["status"] = {name: value for name, value in (item.get("status") or {}).items() if name != _CLUSTER_STATUS}
    return found
