"""Prunes objects for the cache: 300 jobs have 3,000 objects, and the operator needs little of their text. No I/O."""

from __future__ import annotations

from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object

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
