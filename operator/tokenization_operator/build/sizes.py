"""How large the Pods of Ray are: defaults, and the tasks and memory that a worker has room for. Pure."""

from __future__ import annotations

from typing import Any

from tokenization_operator.build.placement import Placement, place_workers
from tokenization_operator.build.pod import complete_resources
from tokenization_operator.objects.quantities import read_quantity
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.workers import WORKER_BYTES

HEAD_MEMORY = "4Gi"
HEAD_CPU = "1"
WORKER_CPU = "4"
WORKER_MEMORY = "8Gi"
"""The default for a worker: 700 MiB per CPU, the object store and Ray itself."""

OBJECT_STORE_BYTES = 200 << 20


def slots_of_worker(job: TokenizationJob, task_bytes: int | None = None) -> int:
    """The number of concurrent tasks of a worker Pod: one per requested CPU, limited by the requested memory."""
    requests = requests_of_worker(job)
    cpus = int(read_quantity(str(requests["cpu"])))
    return max(1, min(cpus, _without_store(requests["memory"]) // (task_bytes or WORKER_BYTES)))


def memory_limit(job: TokenizationJob) -> int:
    """Bytes that the container of a worker may use, without Ray's object store."""
    _, limits = resources_of_worker(place_workers(job.spec.workers, ""))
    return _without_store(limits["memory"])


def _without_store(memory: Any) -> int:
    return int(read_quantity(str(memory))) - OBJECT_STORE_BYTES


def requests_of_worker(job: TokenizationJob) -> dict[str, Any]:
    """What the scheduler reserves for a worker Pod."""
    requests, _ = resources_of_worker(place_workers(job.spec.workers, ""))
    return requests


def resources_of_worker(placement: Placement) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests and limits of a worker's container."""
    return complete_resources(placement.requests, placement.limits, cpu=WORKER_CPU, memory=WORKER_MEMORY)
