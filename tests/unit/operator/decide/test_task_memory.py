"""Workers run as many tasks of a shuffle as their memory holds, and none where it holds no task."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster.story import Story
from tokenization_operator.objects.kinds import Kind

GIB = 1 << 30


def planned(task_bytes: int | None, **resources: Any) -> Story:
    story = Story({"workers": {"replicas": 2, "resources": resources}})
    story.plan(**({} if task_bytes is None else {"taskBytes": task_bytes}))
    return story


def slots(story: Story) -> tuple[int, str]:
    """Of the whole attempt, as its driver is told, and of a worker, as Ray is told."""
    [checkpoint], [ray_job] = story.api.of(Kind.CHECKPOINT), story.api.of(Kind.RAY_JOB)
    [group] = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return checkpoint["spec"]["attempt"]["slots"], group["rayStartParams"]["num-cpus"]


@pytest.mark.parametrize(("task_bytes", "expected"), [(None, (16, "8")), (2 * GIB, (14, "7")), (8 * GIB, (2, "1"))])
def test_slots_follow_the_memory_of_a_task(task_bytes: int | None, expected: tuple[int, str]) -> None:
    assert slots(planned(task_bytes, requests={"cpu": 8, "memory": "16Gi"})) == expected


def test_a_limit_above_the_request_lets_one_task_run() -> None:
    assert slots(planned(9 * GIB, limits={"memory": "16Gi"})) == (2, "1")


def test_a_worker_that_holds_no_task_gets_no_machines_until_the_job_is_corrected() -> None:
    story = planned(2 * GIB, requests={"cpu": 1, "memory": "2Gi"})
    assert story.where == ("Pending", "WorkerMemory")
    assert story.status["message"] == (
        "a task of this shuffle needs 2048 MiB of memory, and a worker has 1848 MiB for tasks: raise "
        "the memory in workers.resources to at least 2248Mi. The attempt then begins"
    )
    assert story.made(Kind.RAY_JOB) == []
    assert "failures" not in story.status
    story.edit(workers={"resources": {"requests": {"cpu": 1, "memory": "2248Mi"}}})
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]
    assert slots(story) == (2, "1")
