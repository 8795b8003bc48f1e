"""The operator's settings, which the chart passes as environment variables."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from tokenization_worker.api.job import WORKER_ACCOUNT, PullPolicy
from tokenization_worker.api.manifest.describe import describe_error
from tokenization_worker.api.pod.extras import PodAnnotations, PodLabels
from tokenization_worker.api.pod.resources import Resources
from tokenization_worker.api.types.fields import Flag, KubernetesObject
from tokenization_worker.api.types.model import SpecBlock

VARIABLES = {
    "TOKENIZATION_WORKER_IMAGE": "the image of plan Pods, heads and workers, where a job names none (required)",
    "TOKENIZATION_RAY_VERSION": "the version of Ray in that image (required)",
    "TOKENIZATION_NAMESPACES": "namespaces to watch, with spaces or commas between them; absent: all",
    "TOKENIZATION_IMAGE_PULL_POLICY": "Always, IfNotPresent or Never (IfNotPresent)",
    "TOKENIZATION_IMAGE_PULL_SECRETS": "names of Secrets",
    "TOKENIZATION_SERVICE_ACCOUNT": "of all Pods of a job (tokenization-worker)",
    "TOKENIZATION_PRIORITY_CLASS": "of workers on TPU hosts that another job has reserved",
    "TOKENIZATION_PRICE_PER_CHIP_HOUR": "of a TPU chip, for the cost of jobs; absent: none is shown",
    "TOKENIZATION_PRICE_PER_CPU_HOUR": "of a requested CPU on an ordinary node, its memory included; absent: likewise",
    "TOKENIZATION_CURRENCY": "of these prices (USD)",
    "TOKENIZATION_PLAN_DEADLINE_SECONDS": "seconds that a plan may take (3600)",
    "TOKENIZATION_PLAN_RESOURCES": "requests and limits of plan Pods, as JSON",
    "TOKENIZATION_JOB_PODS": "what Pods of jobs have by default, as JSON: the chart's jobPods",
    "TOKENIZATION_RESYNC_SECONDS": "seconds between two checks of every job, independent of watches (60)",
    "TOKENIZATION_RAY_JOB_RETENTION_SECONDS": "seconds that the RayJob of a committed run stays after its end (3600)",
    "TOKENIZATION_LEASE_NAME": "of the Lease that the working operator holds; absent: it is the only one",
    "TOKENIZATION_LEASE_NAMESPACE": "where that Lease is (required with it)",
    "TOKENIZATION_POD_NAME": "who holds the Lease (the machine's name)",
    "TOKENIZATION_RETRY_DELAY_SECONDS": "seconds before a second attempt; each further pause is twice as long (10)",
}


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """The Lease that the active operator holds. `identity` is unique for each process."""

    namespace: str
    name: str
    identity: str


class RoleDefaults(SpecBlock):
    """What heads, or workers, have by default. `resources`: of jobs that name none for them."""

    resources: Resources = Resources()


class HeadDefaults(RoleDefaults):
    """`disruption_budget`: whether drains wait for heads."""

    disruption_budget: Flag = True


class JobPods(SpecBlock):
    """What the Pods of all jobs have by default.

    A job's own labels and annotations take precedence; its tolerations are added. `user_id`: None if the cluster
    chooses it, as OpenShift does.
    """

    labels: PodLabels | None = None
    annotations: PodAnnotations | None = None
    tolerations: list[KubernetesObject] | None = None
    head: HeadDefaults = HeadDefaults()
    workers: RoleDefaults = RoleDefaults()
    user_id: int | None = None


class SettingsInvalid(Exception):
    """A setting has an invalid value; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespaces`: those watched; empty means all. Times are in seconds."""

    image: str
    ray_version: str
    namespaces: tuple[str, ...] = ()
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = WORKER_ACCOUNT
    low_priority_class: str = ""
    price_per_chip_hour: float | None = None
    price_per_cpu_hour: float | None = None
    currency: str = "USD"
    plan_deadline_s: int = 3600
    resync_s: float = 60.0
    ray_job_retention_s: float = 3600.0
    retry_delay_s: float = 10.0
    retry_delay_max_s: float = 600.0
    commit_grace_s: float = 60.0
    pod_resources: Mapping[str, Any] = field(default_factory=dict)
    job_pods: JobPods = field(default_factory=lambda: JobPods(user_id=1000))
    lease: LeaseSettings | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read `TOKENIZATION_*`. Absent or empty variables get defaults. Raises `SettingsInvalid`."""
        deadline = _number(environment, "TOKENIZATION_PLAN_DEADLINE_SECONDS")
        found: dict[str, Any] = {
            "namespaces": _words(environment, "TOKENIZATION_NAMESPACES"),
            "image_pull_policy": _one_of(environment, "TOKENIZATION_IMAGE_PULL_POLICY", tuple(PullPolicy)),
            "image_pull_secrets": _words(environment, "TOKENIZATION_IMAGE_PULL_SECRETS"),
            "low_priority_class": environment.get("TOKENIZATION_PRIORITY_CLASS"),
            "service_account": environment.get("TOKENIZATION_SERVICE_ACCOUNT"),
            "price_per_chip_hour": _number(environment, "TOKENIZATION_PRICE_PER_CHIP_HOUR"),
            "price_per_cpu_hour": _number(environment, "TOKENIZATION_PRICE_PER_CPU_HOUR"),
            "currency": environment.get("TOKENIZATION_CURRENCY"),
            "plan_deadline_s": int(deadline) if deadline else None,
            "resync_s": _number(environment, "TOKENIZATION_RESYNC_SECONDS"),
            "ray_job_retention_s": _number(environment, "TOKENIZATION_RAY_JOB_RETENTION_SECONDS"),
            "retry_delay_s": _number(environment, "TOKENIZATION_RETRY_DELAY_SECONDS"),
            "pod_resources": _object(environment, "TOKENIZATION_PLAN_RESOURCES"),
            "job_pods": _job_pods(environment),
            "lease": _lease(environment),
        }
        return cls(
            image=_required(environment, "TOKENIZATION_WORKER_IMAGE"),
            ray_version=_required(environment, "TOKENIZATION_RAY_VERSION"),
            **{name: value for name, value in found.items() if value},
        )


def _lease(environment: Mapping[str, str]) -> LeaseSettings | None:
    name = environment.get("TOKENIZATION_LEASE_NAME")
    if not name:
        return None
    pod = environment.get("TOKENIZATION_POD_NAME") or socket.gethostname()
    return LeaseSettings(_required(environment, "TOKENIZATION_LEASE_NAMESPACE"), name, f"{pod}_{uuid.uuid4()}")


def _job_pods(environment: Mapping[str, str]) -> JobPods | None:
    name = "TOKENIZATION_JOB_PODS"
    found = _object(environment, name)
    if not found:
        return None
    try:
        return JobPods.model_validate(found)
    except ValidationError as error:
        words = "; ".join(describe_error(JobPods, each) for each in error.errors())
        raise SettingsInvalid(f"{name} (the chart's jobPods): {words}") from None


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsInvalid(f"{name} is not set")
    return value


def _one_of(environment: Mapping[str, str], name: str, known: tuple[str, ...]) -> str | None:
    value = environment.get(name) or None
    if value is not None and value not in known:
        raise SettingsInvalid(f"{name} is {value!r}, expected one of {', '.join(known)}")
    return value


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for word in environment.get(name, "").replace(",", " ").split() if word)


def _number(environment: Mapping[str, str], name: str) -> float | None:
    value = environment.get(name)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise SettingsInvalid(f"{name} is {value!r}, expected a number") from None
    if number <= 0:
        raise SettingsInvalid(f"{name} is {value!r}, expected a number above 0")
    return number


def _object(environment: Mapping[str, str], name: str) -> Mapping[str, Any]:
    value = environment.get(name)
    if not value:
        return {}
    try:
        found = json.loads(value)
    except json.JSONDecodeError as error:
        raise SettingsInvalid(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise SettingsInvalid(f"{name} is {value!r}, expected a JSON object")
    return found
