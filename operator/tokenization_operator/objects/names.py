"""Names of a job's children, and the labels by which they are found. Decides; does no I/O.

Lengths: a job's name has at most 36 characters (a rule of its kind). KubeRay allows 47 for a RayJob, so numbers of runs
and attempts may have five digits together.
"""

from __future__ import annotations

from tokenization_worker.api.job import API_GROUP

JOB_LABEL = f"{API_GROUP}/job"
RUN_LABEL = f"{API_GROUP}/run"
ATTEMPT_LABEL = f"{API_GROUP}/attempt"
NODE_TYPE_LABEL = "ray.io/node-type"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

_MOST_OF_CLUSTER = 50  # letters of a RayCluster's name that KubeRay takes into those of its Pods


def checkpoint_name(job: str, run: int) -> str:
    return f"{job}-r{run}"


def plan_job_name(job: str, run: int, try_number: int) -> str:
    """Of the `try_number`-th try to plan a run, from 1."""
    return f"{job}-r{run}-p{try_number}"


def next_plan_job_name(name: str | None) -> str:
    """Of the try after this one."""
    stem, _, number = str(name).rpartition("-p")
    return f"{stem}-p{int(number) + 1}"


def ray_job_name(job: str, run: int, attempt: int) -> str:
    return f"{job}-r{run}-a{attempt}"


def plan_pod_prefix(plan_job: str) -> str:
    """What the name of a plan Job's Pod begins with."""
    return f"{plan_job}-"


def head_pod_prefix(ray_cluster: str) -> str:
    """What the name of a RayCluster's head Pod begins with. The suffix tells `demo-1` from `demo-1-2`."""
    return f"{ray_cluster[:_MOST_OF_CLUSTER]}-head"


def child_labels(job: str, run: int, attempt: int) -> dict[str, str]:
    """Of all children; attempt 0 is the plan. No label of the job itself is copied but Kueue's two."""
    return {JOB_LABEL: job, RUN_LABEL: str(run), ATTEMPT_LABEL: str(attempt)}
