"""What a job says while it releases its machines, and when it has: suspended jobs, and deleted ones that are held."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster.story import Story, planned, running
from tokenization_operator.objects.kinds import Kind

BEFORE_THE_JOB = "2026-11-22T11:00:00Z"


def make_pod(story: Story, name: str, *, attempt: int = 1, role: str = "worker") -> None:
    """A Pod that outlives its RayJob: Kubernetes ends it in its own time."""
    labels = {"tokenization.dev/job": "demo", "tokenization.dev/run": "1", "tokenization.dev/attempt": str(attempt)}
    metadata = {"name": name, "labels": labels | {"ray.io/node-type": role, "ray.io/cluster": "demo-r1-a1-abcde"}}
    story.api.create(Kind.POD, {"metadata": metadata, "status": {"phase": "Running"}})
    story.settle()


def end_pod(story: Story, name: str) -> None:
    story.api.remove(Kind.POD, name)
    story.settle()


# Suspended


def test_a_job_is_suspended_when_the_last_pod_of_its_attempts_is_gone() -> None:
    story = running()
    make_pod(story, "head", role="head")
    make_pod(story, "worker")
    story.edit(suspend=True)
    assert story.where == ("Suspending", "Suspending")
    assert story.status["message"] == "2 Pods still hold machines, such as head; finished work is kept"
    assert story.conditions["Suspended"] == "False"
    assert story.names(Kind.RAY_JOB) == []
    end_pod(story, "head")
    assert story.status["message"] == "Pod worker still holds a machine; finished work is kept"
    end_pod(story, "worker")
    assert story.where == ("Suspended", "Suspended")
    assert [reason for reason, _ in story.api.events].count("Suspending") == 1


def test_a_pod_that_never_ends_keeps_no_job_from_going_on() -> None:
    story = running()
    make_pod(story, "worker")
    story.edit(suspend=True)
    story.pass_time(86_400)
    assert story.where == ("Suspending", "Suspending")
    story.edit(suspend=False)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]
    story.run()
    assert story.where == ("Running", "Running")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"tokenization.dev/attempt": "0"}}},
        {"metadata": {"creationTimestamp": BEFORE_THE_JOB}},
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed"}},
    ],
    ids=["of the plan", "of a deleted namesake", "succeeded", "failed"],
)
def test_a_pod_that_holds_no_machine_of_an_attempt_does_not_count(change: dict[str, Any]) -> None:
    story = running()
    make_pod(story, "other")
    story.api.edit(Kind.POD, "other", change)
    story.settle()
    story.edit(suspend=True)
    assert story.where == ("Suspended", "Suspended")


# Deleted, and held by another tool's finalizer


def delete_held(story: Story, *finalizers: str) -> None:
    leaving = {"deletionTimestamp": "2026-11-22T12:00:00Z", "finalizers": list(finalizers)}
    story.api.edit(Kind.JOB, "demo", {"metadata": leaving})


def test_a_deleted_job_that_is_held_runs_no_more() -> None:
    story = running()
    make_pod(story, "worker")
    assert story.status["display"]["workers"] == "0/1"
    delete_held(story, "example.com/archive", "example.com/audit")
    story.reconcile()
    until = "The job was deleted, and exists until its finalizers are removed: example.com/archive, example.com/audit"
    assert story.where == ("Suspending", "Suspending")
    assert story.status["message"] == f"Pod worker still holds a machine; the operator releases all machines. {until}"
    story.settle()
    assert story.names(Kind.RAY_JOB) == []
    end_pod(story, "worker")
    assert story.where == ("Suspended", "MachinesReturned")
    assert story.status["message"] == f"the operator has released all machines. {until}"
    assert "workers" not in story.status
    assert not {"workers", "rate", "eta"} & story.status["display"].keys()
    assert story.status["attempt"]["isOver"]
    assert (story.conditions["Suspended"], story.conditions["Ready"]) == ("True", "False")
    assert [reason for reason, _ in story.api.events].count("MachinesReturned") == 1


@pytest.mark.parametrize("begin", [Story, planned], ids=["planning", "starting"])
def test_a_deleted_job_that_has_not_begun_says_so_too(begin: Any) -> None:
    story = begin()
    delete_held(story, "example.com/archive")
    story.settle()
    assert story.where == ("Suspended", "MachinesReturned")
    before = story.api.calls
    story.reconcile()
    assert story.api.calls == before, "nothing is left to do"


def test_the_machines_of_a_deleted_job_cost_until_they_are_released() -> None:
    story = running()
    story.pass_time(3600)
    delete_held(story, "example.com/archive")
    story.settle()
    assert story.status["cost"]["hostHours"] == "1"


def test_a_finished_job_that_is_deleted_and_held_keeps_its_status() -> None:
    story = running()
    story.commit()
    before = story.status
    delete_held(story, "example.com/archive")
    story.settle()
    assert story.status == before


def test_a_deleted_job_that_no_operator_can_read_still_loses_its_children() -> None:
    story = running()
    story.api.edit(Kind.JOB, "demo", {"spec": {"ofALaterVersion": 1}})
    delete_held(story, "example.com/archive")
    story.settle()
    assert story.names(Kind.RAY_JOB) == []
