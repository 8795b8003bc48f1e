"""Reads the state of an attempt from its RayJob and Pods. Pure.

A RayJob has two states: of its deployment (cluster, submitter) and of the job inside. `Complete` is not success: a
stopped job is complete too. One that is suspended waits in a queue, whatever its status still says: Kueue preempts a
running RayJob so, and resumes it. Unknown states count as starting.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tokenization_operator.objects.reading import Object, is_leaving, node_type


class Stage(StrEnum):
    """The progress of an attempt."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDED = "Ended"
    FAILED = "Failed"
    REFUSED = "Refused"


class JobEnd(StrEnum):
    """Ends of the job inside that are no success, as Ray names them."""

    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class RayState:
    """`reason` and `message`: KubeRay's own, after a failure; of an end, the status of the job inside. `ended`: end
    time as Kubernetes writes it."""

    stage: Stage
    reason: str = ""
    message: str = ""
    ended: str = ""

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.ENDED, Stage.FAILED, Stage.REFUSED)

    @property
    def was_stopped(self) -> bool:
        """Whether the job inside was stopped."""
        return self.stage is Stage.ENDED and self.reason == JobEnd.STOPPED

    @property
    def has_job_failed(self) -> bool:
        """Whether the job inside failed where KubeRay counts that as an end."""
        return self.stage is Stage.ENDED and self.reason == JobEnd.FAILED


def read_ray_job(ray_job: Object) -> RayState:
    """The state of an existing RayJob."""
    status = ray_job.get("status") or {}
    deployment, job = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
    words = status.get("message", "")
    ended = status.get("endTime", "")
    match deployment:
        case "ValidationFailed":
            return RayState(Stage.REFUSED, status.get("reason", "") or deployment, words, ended)
        case "Failed":
            return RayState(Stage.FAILED, status.get("reason", "") or deployment, words, ended)
        case "Complete":
            return RayState(Stage.ENDED, job, words, ended)
    if deployment in ("Suspended", "Suspending") or (ray_job.get("spec") or {}).get("suspend"):
        return RayState(Stage.QUEUED)
    return RayState(Stage.RUNNING, job) if deployment == "Running" else RayState(Stage.STARTING)


def cluster_name(ray_job: Object) -> str | None:
    """The RayCluster that KubeRay created for this RayJob."""
    return (ray_job.get("status") or {}).get("rayClusterName") or None


def find_head(pods: tuple[Object, ...]) -> Object | None:
    """The running head Pod, if any: not being deleted, with no restarted container."""
    for pod in pods:
        status = pod.get("status") or {}
        is_head = node_type(pod) == "head"
        has_ended = any(each.get("restartCount") for each in status.get("containerStatuses") or ())
        if is_head and status.get("phase") == "Running" and not is_leaving(pod) and not has_ended:
            return pod
    return None


def count_ready_workers(pods: tuple[Object, ...]) -> int:
    """Count workers that are Running and Ready."""
    return sum(_is_ready(pod) for pod in pods if node_type(pod) == "worker")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
