"""What a look at a job may come to: the status that it has now, and what is to be done to its children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenization_operator.decide.status.unknown_fields import known_fields
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.merge import merge_patch
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.checkpoint import AttemptSpec
from tokenization_worker.api.status import JobStatus

_OF_UNKNOWN_FIELDS = ("minimumVersion",)
"""Stays with the fields that ask for it."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a child, unless it is there; one of that name that somebody else owns is no child."""

    kind: Kind
    body: Object


@dataclass(frozen=True, slots=True)
class UpdateCheckpoint:
    """Make the checkpoint, or set these fields of its spec: what the next Pods are to do, and who may report."""

    body: Object
    fields: dict[str, Any]

    def changes(self, found: Object) -> dict[str, Any]:
        """What is to be merged into the spec of the checkpoint that is there; empty where it says all this already.

        What a newer operator has said of the same attempt, and this version does not know, stays.
        """
        there = {name: found["spec"][name] for name in self.fields if name in found["spec"]}
        attempt, wanted = there.get("attempt") or {}, self.fields.get("attempt") or {}
        if attempt and attempt.get("number") == wanted.get("number"):
            known = known_fields(AttemptSpec, attempt)
            there["attempt"] = {name: value for name, value in known.items() if name not in _OF_UNKNOWN_FIELDS}
        return merge_patch(there, self.fields)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this version of this object: what has changed since is looked at again first.

    Without `resource_version`: whatever its version (of what this operator has just made itself).
    """

    kind: Kind
    name: str
    uid: str
    resource_version: str | None = None


Action = Create | UpdateCheckpoint | Delete


@dataclass(frozen=True, slots=True)
class Decision:
    """`status` is written first, if it has changed, then the `actions` are done in order; `requeue_after_s`: at the
    latest, also if nothing happens. Not `is_observed`: the job's present generation is not what `status` is of."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    requeue_after_s: float | None = None
    is_observed: bool = True


def deletion(kind: Kind, child: Object) -> Delete:
    metadata = child["metadata"]
    return Delete(kind, metadata["name"], metadata["uid"], metadata["resourceVersion"])
