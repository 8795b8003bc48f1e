"""A Kubernetes object, and what is read from any of them. Decides; does no I/O."""

from __future__ import annotations

from typing import Any

from tokenization_operator.objects.names import NODE_TYPE_LABEL

Object = dict[str, Any]
"""A Kubernetes object as the API server has it."""

ENDS = ("Complete", "Failed")
"""Conditions of what has ended: a Job of Kubernetes, and a job of this operator."""


def is_owned(child: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in child["metadata"].get("ownerReferences") or ())


def is_leaving(child: Object) -> bool:
    """Whether it was deleted and is still there."""
    return bool(child["metadata"].get("deletionTimestamp"))


def node_type(pod: Object) -> str:
    """What KubeRay has made a Pod for: `head` or `worker`; nothing for Pods that are not of a RayCluster."""
    return str((pod["metadata"].get("labels") or {}).get(NODE_TYPE_LABEL, ""))


def has_ended(job: Object) -> bool:
    """Whether a Job of Kubernetes has ended, well or badly: no Pod of it works any more."""
    return any(condition(job, kind) is not None for kind in ENDS)


def condition(child: Object, kind: str) -> Object | None:
    """The condition of that type that holds."""
    for each in (child.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "True":
            found: Object = each
            return found
    return None
