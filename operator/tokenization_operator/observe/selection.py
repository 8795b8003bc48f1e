"""Selects, among cached objects, those that belong to a job's run and attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tokenization_operator.objects.names import ATTEMPT_LABEL, ray_job_name
from tokenization_operator.objects.reading import Object, label
from tokenization_operator.observe.observation import Observation
from tokenization_operator.observe.rayjob_status import cluster_name

_MANAGERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "app.kubernetes.io/instance": "Argo CD or Helm",  # Argo CD's default before version 3
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}


def find_named(children: Iterable[Object], name: str | None) -> Object | None:
    return next((child for child in children if child["metadata"]["name"] == name), None)


def with_ray_jobs(observation: Observation, ray_jobs: list[Object]) -> Observation:
    """Assign the RayJob named after the current attempt; all others become `stray_ray_jobs`."""
    run, attempt = observation.status.run, observation.status.attempt
    name = ray_job_name(observation.job.metadata.name, run.number, attempt.number) if run and attempt else ""
    current = find_named(ray_jobs, name)
    return replace(observation, ray_job=current, stray_ray_jobs=tuple(each for each in ray_jobs if each is not current))


def select_pods(pods: Iterable[Object], plan_job: Object | None, ray_job: Object | None) -> tuple[Object, ...]:
    """The Pods of these two children: of the plan Job, the submitter Job and the RayCluster."""
    wanted = {child["metadata"]["name"] for child in (plan_job, ray_job) if child is not None}
    if ray_job is not None and (cluster := cluster_name(ray_job)) is not None:
        wanted.add(cluster)
    found = []
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        owners = {owner.get("name") for owner in pod["metadata"].get("ownerReferences") or ()}
        if wanted & ({labels.get("ray.io/cluster"), labels.get("batch.kubernetes.io/job-name")} | owners):
            found.append(pod)
    return tuple(found)


def select_attempt_pods(pods: Iterable[Object], job_created: str) -> tuple[Object, ...]:
    """The Pods of all attempts of a job that have not ended. Pods of a deleted namesake are older than the job."""
    return tuple(pod for pod in pods if _is_of_attempt(pod) and not _is_of_namesake(pod, job_created) and _runs(pod))


def _is_of_attempt(pod: Object) -> bool:
    """Whether it is no Pod of a plan."""
    return label(pod, ATTEMPT_LABEL) not in ("", "0")


def _is_of_namesake(pod: Object, job_created: str) -> bool:
    return str(pod["metadata"].get("creationTimestamp") or "") < job_created


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def service_account_of(child: Object) -> str:
    """The ServiceAccount of the Pods of a plan Job or a RayJob."""
    spec = child["spec"]
    template = spec["template"] if "template" in spec else spec["rayClusterSpec"]["headGroupSpec"]["template"]
    return str(template["spec"]["serviceAccountName"])


def find_manager(job: Object) -> str:
    """The deployment tool whose label or annotation the job carries; empty if there is none."""
    metadata = job["metadata"]
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return next((tool for mark, tool in _MANAGERS.items() if mark in marks), "")
