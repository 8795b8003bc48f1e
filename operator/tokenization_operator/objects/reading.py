"""Reads common fields of any Kubernetes object. Pure."""

from __future__ import annotations

from typing import Any

from tokenization_operator.objects.names import NODE_TYPE_LABEL

Object = dict[str, Any]
"""A Kubernetes object as the API server returns it."""

ENDS = ("Complete", "Failed")
"""Conditions that mark the end of a Kubernetes Job and of a TokenizationJob."""


def is_owned(child: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in child["metadata"].get("ownerReferences") or ())


def is_leaving(child: Object) -> bool:
    """Whether the object is deleted but still exists."""
    return bool(child["metadata"].get("deletionTimestamp"))


def label(child: Object, name: str) -> str:
    """The value of a label; empty if the object does not have the label."""
    return str((child["metadata"].get("labels") or {}).get(name, ""))


def node_type(pod: Object) -> str:
    """The role of a RayCluster's Pod: `head` or `worker`; empty for other Pods."""
    return label(pod, NODE_TYPE_LABEL)


def has_ended(job: Object) -> bool:
    """Whether a Kubernetes Job has ended, in success or failure: none of its Pods runs any more."""
    return any(condition(job, kind) is not None for kind in ENDS)


def condition(child: Object, kind: str) -> Object | None:
    """The condition of this type, if it is true."""
    for each in (child.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "True":
            found: Object = each
            return found
    return None
