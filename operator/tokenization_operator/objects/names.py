"""Names and labels of a job's children. Pure.

A job's name has at most 36 characters (a rule of its CRD), and KubeRay allows 47 for a RayJob: the numbers of run and
attempt may have five digits together.
"""

from __future__ import annotations

from tokenization_worker.api.metadata import API_GROUP

JOB_LABEL = f"{API_GROUP}/job"
RUN_LABEL = f"{API_GROUP}/run"
ATTEMPT_LABEL = f"{API_GROUP}/attempt"
FIELDS_ANNOTATION = f"{API_GROUP}/fields"
"""Of a RayJob: the digest of each field of the job that it is made of, and its `QUEUE_FIELDS`, as JSON."""
NODE_TYPE_LABEL = "ray.io/node-type"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
QUEUE_FIELDS = {"queue": QUEUE_LABEL, "queue priority": QUEUE_PRIORITY_LABEL}
"""What `FIELDS_ANNOTATION` has of the job's labels: Kueue may set those of the RayJob itself."""

_MOST_OF_CLUSTER = 50  # characters of a RayCluster's name that KubeRay keeps in Pod names


def checkpoint_name(job: str, run: int) -> str:
    return f"{job}-r{run}"


def plan_job_name(job: str, run: int, try_number: int) -> str:
    """`try_number` counts from 1."""
    return f"{job}-r{run}-p{try_number}"


def next_plan_job_name(name: str | None) -> str:
    """The name of the plan Job of the next try."""
    stem, _, number = str(name).rpartition("-p")
    return f"{stem}-p{int(number) + 1}"


def ray_job_name(job: str, run: int, attempt: int) -> str:
    return f"{job}-r{run}-a{attempt}"


def plan_pod_prefix(plan_job: str) -> str:
    """The prefix of the names of a plan Job's Pods."""
    return f"{plan_job}-"


def head_pod_prefix(ray_cluster: str) -> str:
    """The prefix of the name of a RayCluster's head Pod. The suffix distinguishes `demo-1` from `demo-1-2`."""
    return f"{ray_cluster[:_MOST_OF_CLUSTER]}-head"


def child_labels(job: str, run: int, attempt: int) -> dict[str, str]:
    """The labels of every child; attempt 0 is the plan. Of the job's own labels, children copy only Kueue's two."""
    return {JOB_LABEL: job, RUN_LABEL: str(run), ATTEMPT_LABEL: str(attempt)}
