"""What the operator sees of one job at one moment. Values only: the reconciler fills it, `decide` reads it.

Children that are not owned by this very job (by UID) are no children: a namesake may have left them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from tokenization_operator.objects.reading import Object
from tokenization_worker.api.checkpoint import CheckpointStatus
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.status import JobStatus


class KubeRay(StrEnum):
    """Whether RayJobs can be had."""

    AVAILABLE = "There"
    MISSING = "Missing"
    TOO_OLD = "TooOld"


class PodEvent(NamedTuple):
    """An event about a Pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One job and all that belongs to it.

    `stray_ray_jobs`: beside that of the attempt; one that was asked for long ago may come late. `warnings`: what events
    say of Pods that could not be made, the newest first. `pod_events`: what is said of a Pod that finds no node, the
    oldest first; None where those events were not read. `warnings_known`: False where events could not be read, so that
    `warnings` may lack some.
    """

    job: TokenizationJob
    uid: str
    generation: int
    status: JobStatus
    now: datetime
    checkpoint: Object | None = None
    plan_job: Object | None = None
    ray_job: Object | None = None
    stray_ray_jobs: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()
    pod_events: tuple[PodEvent, ...] | None = None
    warnings_known: bool = True
    kuberay: KubeRay = KubeRay.AVAILABLE
    has_service_account: bool = True
    managed_by: str = ""
    reports: CheckpointStatus = field(default_factory=CheckpointStatus)

    @property
    def namespace(self) -> str:
        return self.job.metadata.namespace or "default"
