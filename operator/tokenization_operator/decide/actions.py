"""The result of a decision: the job's new status and the actions on its children."""

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
"""Kept together with the unknown fields that require it."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a child unless it exists; an object with its name and another owner is not a child.

    `trials`: Jobs with the child's Pods, which the API server must accept in a dry run first. `is_optional`: the job
    goes on without the child if the API server refuses it.
    """

    kind: Kind
    body: Object
    trials: tuple[Object, ...] = ()
    is_optional: bool = False

    @property
    def owner_uid(self) -> str:
        """The child's owner: the job, or a RayJob of it."""
        return str(self.body["metadata"]["ownerReferences"][0]["uid"])


@dataclass(frozen=True, slots=True)
class UpdateCheckpoint:
    """Create the checkpoint, or set these fields of its spec: the next Pods' instructions, and which Pod may report."""

    body: Object
    fields: dict[str, Any]

    def changes(self, found: Object) -> dict[str, Any]:
        """The merge patch for the spec of an existing checkpoint; empty if it has these values already.

        Fields that a newer operator wrote for the same attempt, and that this version does not know, are kept.
        """
        stored = {name: found["spec"][name] for name in self.fields if name in found["spec"]}
        attempt, wanted = stored.get("attempt") or {}, self.fields.get("attempt") or {}
        if attempt and attempt.get("number") == wanted.get("number"):
            known = known_fields(AttemptSpec, attempt)
            kept = _OF_UNKNOWN_FIELDS if attempt.keys() - known.keys() else ()
            stored["attempt"] = {name: value for name, value in known.items() if name not in kept}
        return merge_patch(stored, self.fields)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this version of an object; a changed object is reconciled again first.

    Without `resource_version`: any version (the operator has just created the object).
    """

    kind: Kind
    name: str
    uid: str
    resource_version: str | None = None


Action = Create | UpdateCheckpoint | Delete


@dataclass(frozen=True, slots=True)
class Decision:
    """Write `status` first if it has changed, then apply `actions` in order. `requeue_after_s`: reconcile again at the
    latest then. `is_observed`: False if `status` does not describe the job's present generation."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    requeue_after_s: float | None = None
    is_observed: bool = True


def deletion(kind: Kind, child: Object) -> Delete:
    metadata = child["metadata"]
    return Delete(kind, metadata["name"], metadata["uid"], metadata["resourceVersion"])
