"""What KubeRay says of an attempt, in few words. Decides; does no I/O.

A RayJob has two states: that of its deployment (cluster, submitter) and that of the job inside. `Complete` is no
success: a job that was stopped is complete, too. What KubeRay does not know it writes in words of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tokenization_operator.objects.reading import Object, is_leaving, node_type


class Stage(StrEnum):
    """How far an attempt is."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDED = "Ended"
    FAILED = "Failed"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class RayState:
    """`reason`, `message`: KubeRay's own, where it failed; `ended`: when it ended, as Kubernetes writes it."""

    stage: Stage
    reason: str = ""
    message: str = ""
    ended: str = ""

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.ENDED, Stage.FAILED, Stage.REFUSED)


def read_ray_job(ray_job: Object) -> RayState:
    """The state of a RayJob that is there."""
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
        case "Running":
            return RayState(Stage.RUNNING, job)
        case "Suspended" | "Suspending":
            return RayState(Stage.QUEUED)
    if (ray_job.get("spec") or {}).get("suspend"):
        return RayState(Stage.QUEUED)
    return RayState(Stage.STARTING)


def cluster_name(ray_job: Object) -> str | None:
    """The RayCluster that KubeRay has made for it."""
    return (ray_job.get("status") or {}).get("rayClusterName") or None


def find_head(pods: tuple[Object, ...]) -> Object | None:
    """The head Pod that works, if there is one: not leaving, and with containers that have never ended."""
    for pod in pods:
        status = pod.get("status") or {}
        is_head = node_type(pod) == "head"
        has_ended = any(each.get("restartCount") for each in status.get("containerStatuses") or ())
        if is_head and status.get("phase") == "Running" and not is_leaving(pod) and not has_ended:
            return pod
    return None


def count_ready_workers(pods: tuple[Object, ...]) -> int:
    """Workers that are Running and Ready."""
    return sum(_is_ready(pod) for pod in pods if node_type(pod) == "worker")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
