"""Builds the children of a job as Kubernetes objects: checkpoint, plan Job, and RayJob with its Pods. Pure.

A child is created once and never patched (Kueue edits RayJobs, KubeRay ignores later edits), except for the
checkpoint's `spec.attempt` and the fields that name its writer. The job owns every child, so that all are deleted with
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenization_operator.build.placement import SAFE_TO_EVICT, Placement, affinity_of, place_head, place_workers
from tokenization_operator.build.pod import Image, complete_resources, container, pod_spec
from tokenization_operator.build.sizes import (
    HEAD_CPU,
    HEAD_MEMORY,
    OBJECT_STORE_BYTES,
    resources_of_worker,
    slots_of_worker,
)
from tokenization_operator.objects import names
from tokenization_operator.settings import Settings
from tokenization_worker.api.checkpoint import (
    CHECKPOINT_VARIABLE,
    LAST_WORDS_VARIABLE,
    make_attempt_spec,
    make_run_spec,
)
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import field_digests
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.api.pod.extras import Pods
from tokenization_worker.api.version_skew import write_part

_START_PARAMS = {
    "object-store-memory": str(OBJECT_STORE_BYTES),
    "include-log-monitor": "0",  # drivers do not use it. KubeRay would omit "false"
}
_SHARED_MEMORY = "512Mi"
_KEPT_S = 3600
_PLAN_RESOURCES = {"cpu": "1", "memory": "2Gi"}
_SUBMITTER_REQUESTS = {"cpu": "50m", "memory": "256Mi"}
_SUBMITTER_LIMITS = {"memory": "1Gi"}
_STAYS = {SAFE_TO_EVICT: "false"}
"""Of Pods whose end costs the whole attempt, or the plan: an autoscaler does not move them to save a node."""

_TEMPORARY_FOLDER = {"HOME": "/tmp"}
_LAST_WORDS = {LAST_WORDS_VARIABLE: "/dev/termination-log"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """The inputs of an attempt; `number` 0 is the plan. `replicas`: of the workers in this attempt.

    `task_bytes`: memory of a task; None for an ordinary task.
    """

    run: int
    number: int
    image: Image
    replicas: int
    task_bytes: int | None = None


def image_of(job: TokenizationJob, settings: Settings, pinned: str | None) -> Image:
    """The image of a job's Pods. `pinned`: the default image when the run began; the job's own takes precedence."""
    spec = job.spec
    secrets = settings.image_pull_secrets
    if spec.image_pull_secrets is not None:
        secrets = tuple(each.name for each in spec.image_pull_secrets)
    return Image(
        name=spec.image or pinned or settings.image,
        pull_policy=str(spec.image_pull_policy or settings.image_pull_policy),
        pull_secrets=secrets,
        service_account=spec.service_account_name or settings.service_account,
        user_id=settings.job_pods.user_id,
    )


def build_checkpoint(job: TokenizationJob, uid: str, attempt: Attempt, writer_pod_prefix: str | None) -> dict[str, Any]:
    """The checkpoint of a run, with the instructions for its plan or attempt."""
    run = make_run_spec(job, number=attempt.run, job_uid=uid)
    return {
        "apiVersion": API_VERSION,
        "kind": "TokenizationCheckpoint",
        "metadata": _metadata(job, uid, names.checkpoint_name(job.metadata.name, attempt.run), attempt),
        "spec": {
            "run": write_part("run", run),
            **checkpoint_attempt(job, attempt, writer_pod_prefix),
        },
    }


def checkpoint_attempt(job: TokenizationJob, attempt: Attempt, writer_pod_prefix: str | None) -> dict[str, Any]:
    """The part of a checkpoint's spec that changes with each attempt."""
    slots = attempt.replicas * place_workers(job.spec.workers, "").hosts * slots_of_worker(job, attempt.task_bytes)
    made = make_attempt_spec(job, number=attempt.number, image=attempt.image.name, slots=slots)
    return {
        "attempt": write_part("attempt", made),
        "writerPodPrefix": writer_pod_prefix,
        "writerServiceAccount": attempt.image.service_account,
    }


def build_plan_job(job: TokenizationJob, uid: str, attempt: Attempt, name: str, settings: Settings) -> dict[str, Any]:
    """The Kubernetes Job that plans a run. Kubernetes does not retry it: the operator counts failures."""
    checkpoint = names.checkpoint_name(job.metadata.name, attempt.run)
    resources = settings.pod_resources or {"requests": _PLAN_RESOURCES, "limits": {"memory": "2Gi"}}
    plan = container(
        "plan",
        attempt.image,
        command=("tokjob", "plan", "--checkpoint", checkpoint),
        environment=_TEMPORARY_FOLDER | _LAST_WORDS,
        spec=job.spec,
        requests=resources.get("requests", {}),
        limits=resources.get("limits", {}),
        has_token=True,
    )
    template = _pod(job, attempt, place_head(job.spec.head), plan, extras=job.spec.pods, has_token=True)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job, uid, name, attempt),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": settings.plan_deadline_s,
            "ttlSecondsAfterFinished": _KEPT_S,  # so that users can read its log
            "template": {
                "metadata": _pod_metadata(job, attempt, defaults=_STAYS),
                "spec": template | {"restartPolicy": "Never"},
            },
        },
    }


def build_trials(job: TokenizationJob, uid: str, attempt: Attempt, settings: Settings) -> tuple[dict[str, Any], ...]:
    """Jobs with the head's Pod and a worker's, for dry runs: the API server checks there what the job passes on
    unchecked. Empty if the job passes on nothing."""
    pods = job.spec.pods or Pods()
    head, workers = place_head(job.spec.head), place_workers(job.spec.workers, settings.low_priority_class)
    if not (pods.volumes or pods.volume_mounts or head.is_unchecked or workers.is_unchecked):
        return ()
    templates = {"head": _head(job, attempt, head), "workers": _worker(job, attempt, workers)}
    return tuple(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _metadata(job, uid, f"{job.metadata.name}-{role}", attempt),
            "spec": {"template": template | {"spec": template["spec"] | {"restartPolicy": "Never"}}},
        }
        for role, template in templates.items()
    )


def build_ray_job(
    job: TokenizationJob, uid: str, attempt: Attempt, ray_version: str | None, settings: Settings
) -> dict[str, Any]:
    """The RayJob of an attempt. KubeRay does not retry it: its retries carry no number and may overlap."""
    head, workers = place_head(job.spec.head), place_workers(job.spec.workers, settings.low_priority_class)
    name = names.ray_job_name(job.metadata.name, attempt.run, attempt.number)
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(job, uid, name, attempt) | {"annotations": _fields(job)},
        "spec": {
            "submissionMode": "K8sJobMode",
            "shutdownAfterJobFinishes": True,
            "backoffLimit": 0,
            "entrypoint": "tokjob drive",  # KubeRay pastes it unquoted into a shell: it contains no user input
            "submitterPodTemplate": {
                "metadata": _pod_metadata(job, attempt, defaults=_STAYS),
                "spec": _submitter(job, attempt),
            },
            "rayClusterSpec": {
                "rayVersion": ray_version or settings.ray_version,
                "authOptions": {"mode": "token"},
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0", **_START_PARAMS},
                    "template": _head(job, attempt, head),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "workers",
                        "replicas": attempt.replicas,
                        "minReplicas": attempt.replicas,
                        "maxReplicas": attempt.replicas,
                        "numOfHosts": workers.hosts,
                        "rayStartParams": {"num-cpus": str(slots_of_worker(job, attempt.task_bytes)), **_START_PARAMS},
                        "template": _worker(job, attempt, workers),
                    }
                ],
            },
        },
    }


def build_head_budget(job: TokenizationJob, attempt: Attempt, ray_job: Mapping[str, Any]) -> dict[str, Any]:
    """The PodDisruptionBudget of an attempt's head: its eviction would cost the attempt. It goes with the RayJob."""
    metadata = ray_job["metadata"]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": metadata["name"],
            "namespace": job.metadata.namespace,
            "labels": _labels(job, attempt),
            "ownerReferences": [owner],
        },
        "spec": {
            "minAvailable": 1,  # maxUnavailable needs an owner with a scale subresource: a RayCluster has none
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": _labels(job, attempt) | {names.NODE_TYPE_LABEL: "head"}},
        },
    }


def _fields(job: TokenizationJob) -> dict[str, str]:
    """An annotation that lets the operator name the fields that are changed later."""
    labels = {name: job.metadata.labels.get(label, "") for name, label in names.QUEUE_FIELDS.items()}
    return {names.FIELDS_ANNOTATION: json.dumps(field_digests(job) | labels, separators=(",", ":"))}


def _head(job: TokenizationJob, attempt: Attempt, placement: Placement) -> dict[str, Any]:
    checkpoint = names.checkpoint_name(job.metadata.name, attempt.run)
    requests, limits = complete_resources(placement.requests, placement.limits, cpu=HEAD_CPU, memory=HEAD_MEMORY)
    made = container(
        "ray-head",
        attempt.image,
        environment=_TEMPORARY_FOLDER | {CHECKPOINT_VARIABLE: checkpoint},
        spec=job.spec,
        requests=requests,
        limits=limits,
        has_token=True,
        shared_memory=True,
    )
    return _template(job, attempt, placement, made, has_token=True, defaults=_STAYS)


def _worker(job: TokenizationJob, attempt: Attempt, placement: Placement) -> dict[str, Any]:
    requests, limits = resources_of_worker(placement)
    made = container(
        "ray-worker",
        attempt.image,
        environment=_TEMPORARY_FOLDER,
        spec=job.spec,
        requests=requests,
        limits=limits,
        shared_memory=True,
    )
    return _template(job, attempt, placement, made)


def _template(
    job: TokenizationJob,
    attempt: Attempt,
    placement: Placement,
    made: dict[str, Any],
    *,
    has_token: bool = False,
    defaults: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    spec = _pod(job, attempt, placement, made, extras=job.spec.pods, has_token=has_token, shared_memory=_SHARED_MEMORY)
    return {"metadata": _pod_metadata(job, attempt, placement.annotations, defaults), "spec": spec}


def _pod(
    job: TokenizationJob,
    attempt: Attempt,
    placement: Placement,
    made: dict[str, Any],
    *,
    extras: Pods | None = None,
    **more: Any,
) -> dict[str, Any]:
    """`extras`: the user's volumes, if the Pod mounts them; `more`: arguments of `pod_spec`."""
    affinity = affinity_of(placement, job.metadata.name)
    spec = pod_spec(
        made,
        attempt.image,
        extras=extras,
        node_selector=placement.node_selector,
        tolerations=placement.tolerations,
        priority_class_name=placement.priority_class_name,
        **more,
    )
    return spec | placement.passed_on | ({"affinity": affinity} if affinity else {})


def _submitter(job: TokenizationJob, attempt: Attempt) -> dict[str, Any]:
    """KubeRay's own submitter has no securityContext, so restricted Pod Security rejects it. Ours talks only to the
    head: it gets none of the user's environment and volumes."""
    made = container(
        "submitter",
        attempt.image,
        environment=_TEMPORARY_FOLDER,
        spec=job.spec.model_copy(update={"env": [], "env_from": [], "pods": None}),
        requests=_SUBMITTER_REQUESTS,
        limits=_SUBMITTER_LIMITS,
    )
    return _pod(job, attempt, place_head(job.spec.head), made) | {"restartPolicy": "Never"}


def _labels(job: TokenizationJob, attempt: Attempt) -> dict[str, str]:
    return names.child_labels(job.metadata.name, attempt.run, attempt.number)


def _pod_metadata(
    job: TokenizationJob,
    attempt: Attempt,
    annotations: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The user's labels and annotations, overridden by the operator's. `defaults`: annotations that the user may
    override."""
    pods = job.spec.pods or Pods()
    marks = dict(defaults or {}) | (pods.annotations or {}) | dict(annotations or {})
    return {
        "labels": (pods.labels or {}) | _labels(job, attempt),
        **({"annotations": marks} if marks or annotations is not None else {}),
    }


def _metadata(job: TokenizationJob, uid: str, name: str, attempt: Attempt) -> dict[str, Any]:
    asked = {label: job.metadata.labels.get(label) for label in (names.QUEUE_LABEL, names.QUEUE_PRIORITY_LABEL)}
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": _labels(job, attempt) | {label: value for label, value in asked.items() if value},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "TokenizationJob",
                "name": job.metadata.name,
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
