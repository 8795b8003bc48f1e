"""Gives a job what the chart says of the Pods of all jobs. Pure."""

from __future__ import annotations

from typing import TypeVar

from tokenization_operator.settings import JobPods, RoleDefaults
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.pod.extras import Pods
from tokenization_worker.api.pod.template import PodPlacement

P = TypeVar("P", bound=PodPlacement)


def with_defaults(job: TokenizationJob, defaults: JobPods) -> TokenizationJob:
    """The job with the defaults of its Pods: what it says itself takes precedence."""
    own = job.spec.pods or Pods()
    marks = {
        "labels": (defaults.labels or {}) | (own.labels or {}),
        "annotations": (defaults.annotations or {}) | (own.annotations or {}),
    }
    changes = {
        "pods": own.model_copy(update=marks),
        "head": _placed(job.spec.head, defaults, defaults.head),
        "workers": _placed(job.spec.workers, defaults, defaults.workers),
    }
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)})


def _placed(own: P, defaults: JobPods, of_role: RoleDefaults) -> P:
    says_nothing = own.resources.requests is None and own.resources.limits is None
    changes = {
        "tolerations": [*(own.tolerations or ()), *(defaults.tolerations or ())],
        "resources": of_role.resources if says_nothing else own.resources,
    }
    return own.model_copy(update=changes)
