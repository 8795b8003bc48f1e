"""All that the operator knows of one job at one moment. Values only: the observer fills them, `decide` reads them.

Children belong to a job by owner UID: an object that a namesake left behind is not a child.
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
    """Whether the cluster serves RayJobs whose dashboards can be locked."""

    AVAILABLE = "Available"
    MISSING = "Missing"
    TOO_OLD = "TooOld"


class PodEvent(NamedTuple):
    """An event about a Pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One job and the objects that belong to it. `created`: of the job, as Kubernetes writes it.

    `stray_ray_jobs`: RayJobs other than the current attempt's; one requested long ago may arrive late. `warnings`:
    event messages about Pods that could not be created, newest first. `warnings_known`: False if events could not be
    read, so that `warnings` may be incomplete. `pod_events`: events of a Pod that finds no node, oldest first; None if
    they were not read. `attempt_pods`: of all attempts of the job, those that have not ended.
    """

    job: TokenizationJob
    uid: str
    generation: int
    status: JobStatus
    now: datetime
    created: str = ""
    checkpoint: Object | None = None
    plan_job: Object | None = None
    ray_job: Object | None = None
    stray_ray_jobs: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    attempt_pods: tuple[Object, ...] = ()
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
