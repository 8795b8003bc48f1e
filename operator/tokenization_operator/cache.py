"""What the watches have brought: the objects of all kinds as they were last seen. Values only; no I/O.

Looking at a job costs no request. What is created is put in at once, because its event may come after the next look.
"""

from __future__ import annotations

from collections import defaultdict

from tokenization_operator.kinds import Kind
from tokenization_operator.names import JOB_LABEL
from tokenization_operator.observation import Object
from tokenization_operator.trimmed import trimmed
from tokenization_worker.api.job import API_VERSION

Key = tuple[str, str]
"""Namespace and name of a job."""


class Cache:
    """Objects by kind, namespace and name; children also by their job."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._children: defaultdict[Key, set[tuple[str, str, str]]] = defaultdict(set)

    def put(self, kind: str, item: Object) -> bool:
        """Take an object as it is now. False where that is no news: this version is there, or a newer one."""
        place = _place(kind, item)
        old = self._objects.get(place)
        if old is not None and _is_known(item, old):
            return False
        self._objects[place] = trimmed(kind, item)
        if kind != Kind.JOB and (key := job_of(item)) is not None:
            self._children[key].add(place)
        return True

    def drop(self, kind: str, item: Object) -> None:
        """An object is gone, unless another one of that name is there by now."""
        place = _place(kind, item)
        old = self._objects.get(place)
        if old is None or old["metadata"]["uid"] != item["metadata"]["uid"]:
            return
        del self._objects[place]
        if kind != Kind.JOB and (key := job_of(item)) is not None:
            self._children[key].discard(place)
            if not self._children[key]:
                del self._children[key]

    def forget(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Drop an object that is known by these alone."""
        found = self.get(kind, namespace, name)
        if found is not None and found["metadata"]["uid"] == uid:
            self.drop(kind, found)

    def of_kind(self, kind: str) -> list[Object]:
        """Another thread may ask, for Prometheus: it reads a copy."""
        return [item for (found, _, _), item in self._objects.copy().items() if found == kind]

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._objects.get((kind, namespace, name))

    def jobs(self) -> list[Key]:
        return [(namespace, name) for kind, namespace, name in self._objects if kind == Kind.JOB]

    def children(self, key: Key, kind: str) -> list[Object]:
        """Of a job, by name."""
        places = sorted(place for place in self._children.get(key, ()) if place[0] == kind)
        return [self._objects[place] for place in places]


def job_of(item: Object) -> Key | None:
    """The job that an object belongs to: its controller, or, for Pods of its children, the one of its label."""
    metadata = item["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == Kind.JOB and owner.get("apiVersion") == API_VERSION:
            return metadata["namespace"], owner["name"]
    name = (metadata.get("labels") or {}).get(JOB_LABEL)
    return None if name is None else (metadata["namespace"], name)


def _place(kind: str, item: Object) -> tuple[str, str, str]:
    return kind, item["metadata"]["namespace"], item["metadata"]["name"]


def _is_known(item: Object, other: Object) -> bool:
    """Within one object's life: its versions grow (Kubernetes 1.35 and later promise it; etcd always did it)."""
    mine, theirs = item["metadata"], other["metadata"]
    if mine["uid"] != theirs["uid"]:
        return False
    mine_version, their_version = str(mine.get("resourceVersion", "")), str(theirs.get("resourceVersion", ""))
    return mine_version.isdecimal() and their_version.isdecimal() and int(mine_version) <= int(their_version)
