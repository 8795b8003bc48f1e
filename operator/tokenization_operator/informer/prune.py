"""What is remembered of an object: 300 jobs are 3,000 objects, and most of their text is of no use here. No I/O."""

from __future__ import annotations

from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object

_OF_CONTAINERS = ("resources",)
_OF_RAY_JOBS = ("suspend",)
_OF_RAY_CLUSTERS = ("headGroupSpec",)
_CLUSTER_STATUS = "rayClusterStatus"


def prune(kind: str, item: Object) -> Object:
    """Without who has written which field; of Pods the containers' sizes, of RayJobs the head and who holds them."""
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
