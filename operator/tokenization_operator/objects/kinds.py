"""The kinds of objects that the operator watches or creates, and their paths on the API server."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tokenization_worker.api.metadata import API_GROUP, VERSION


class Kind(StrEnum):
    """Values are the `kind` of the objects."""

    JOB = "TokenizationJob"
    CHECKPOINT = "TokenizationCheckpoint"
    PLAN_JOB = "Job"
    RAY_JOB = "RayJob"
    POD = "Pod"
    DISRUPTION_BUDGET = "PodDisruptionBudget"


WATCHED: Final = (Kind.JOB, Kind.CHECKPOINT, Kind.PLAN_JOB, Kind.RAY_JOB, Kind.POD)


class Place(NamedTuple):
    """Group, version and plural of a kind on the API server."""

    group: str
    version: str
    plural: str


PLACES: Final = {
    Kind.JOB: Place(API_GROUP, VERSION, "tokenizationjobs"),
    Kind.CHECKPOINT: Place(API_GROUP, VERSION, "tokenizationcheckpoints"),
    Kind.PLAN_JOB: Place("batch", "v1", "jobs"),
    Kind.RAY_JOB: Place("ray.io", "v1", "rayjobs"),
    Kind.POD: Place("", "v1", "pods"),
    Kind.DISRUPTION_BUDGET: Place("policy", "v1", "poddisruptionbudgets"),
}


def list_path(kind: Kind, namespace: str | None) -> str:
    """The path that lists a kind, in one namespace or in all."""
    group, version, plural = PLACES[kind]
    where = f"/namespaces/{namespace}" if namespace else ""
    return (f"/apis/{group}/{version}" if group else f"/api/{version}") + f"{where}/{plural}"
