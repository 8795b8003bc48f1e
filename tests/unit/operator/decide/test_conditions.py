"""Conditions that a person can read: few, positive, with reasons that agree with their status."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cluster.story import Story, failure, planned, running
from tokenization_operator.objects.names import QUEUE_LABEL
from tokenization_operator.observe.observation import KubeRay

Row = tuple[str, str, str]
"""Type, status and reason of a condition."""


def without_kuberay() -> Story:
    story = Story()
    story.api.kuberay = KubeRay.MISSING
    story.plan()
    return story


def queued() -> Story:
    story = Story(labels={QUEUE_LABEL: "low"})
    story.plan()
    story.ray(jobDeploymentStatus="Suspended")
    return story


def admitted() -> Story:
    story = queued()
    story.ray(jobDeploymentStatus="Initializing")
    return story


def retrying() -> Story:
    story = running()
    story.driver_fails(5, "StorageFailed")
    return story


def failed() -> Story:
    story = running()
    story.driver_fails(4, "QuarantineExceeded")
    return story


def failed_before_a_plan() -> Story:
    story = Story()
    story.plan_fails(2, "SourceInvalid")
    return story


def resumed() -> Story:
    story = failed()
    story.edit(maxQuarantined="50%")
    return story


def succeeded() -> Story:
    story = running()
    story.commit()
    return story


def already_complete() -> Story:
    story = Story()
    story.report(plan={"alreadyComplete": True, "planId": "p"}, committed=None)
    story.commit()
    return story


ACCEPTED = ("Accepted", "True", "Accepted")
PLANNED = ("Planned", "True", "Planned")

TABLE: dict[str, tuple[Callable[[], Story], list[Row]]] = {
    "Planning": (
        Story,
        [
            ACCEPTED,
            ("Planned", "False", "Planning"),
            ("Complete", "False", "Planning"),
            ("Ready", "False", "Planning"),
            ("Reconciling", "True", "Planning"),
        ],
    ),
    "no KubeRay": (
        without_kuberay,
        [
            ("Accepted", "False", "KubeRayUnavailable"),
            PLANNED,
            ("Complete", "False", "Pending"),
            ("Ready", "False", "KubeRayUnavailable"),
            ("Reconciling", "True", "KubeRayUnavailable"),
        ],
    ),
    "Queued": (
        queued,
        [
            ACCEPTED,
            PLANNED,
            ("QuotaReserved", "False", "Queued"),
            ("ClusterReady", "False", "Queued"),
            ("Complete", "False", "Queued"),
            ("Ready", "False", "Queued"),
            ("Reconciling", "True", "Queued"),
        ],
    ),
    "Starting": (
        admitted,
        [
            ACCEPTED,
            PLANNED,
            ("QuotaReserved", "True", "Admitted"),
            ("ClusterReady", "False", "WaitingForWorkers"),
            ("Complete", "False", "Starting"),
            ("Ready", "False", "WaitingForWorkers"),
            ("Reconciling", "True", "WaitingForWorkers"),
        ],
    ),
    "Running": (
        running,
        [
            ACCEPTED,
            PLANNED,
            ("ClusterReady", "True", "Running"),
            ("Complete", "False", "Running"),
            ("Ready", "False", "Running"),
            ("Reconciling", "True", "Running"),
        ],
    ),
    "Retrying": (
        retrying,
        [
            ACCEPTED,
            PLANNED,
            ("ClusterReady", "False", "StorageFailed"),
            ("Complete", "False", "Retrying"),
            ("Ready", "False", "StorageFailed"),
            ("Reconciling", "True", "StorageFailed"),
        ],
    ),
    "Suspended": (
        lambda: planned(suspend=True),
        [
            ACCEPTED,
            PLANNED,
            ("Suspended", "True", "Suspended"),
            ("Complete", "False", "Suspended"),
            ("Ready", "False", "Suspended"),
        ],
    ),
    "Failed": (
        failed,
        [
            ACCEPTED,
            PLANNED,
            ("Complete", "False", "Failed"),
            ("Failed", "True", "QuarantineExceeded"),
            ("Ready", "False", "QuarantineExceeded"),
            ("Stalled", "True", "QuarantineExceeded"),
        ],
    ),
    "failed before there is a plan": (
        failed_before_a_plan,
        [
            ACCEPTED,
            ("Planned", "False", "SourceInvalid"),
            ("Complete", "False", "Failed"),
            ("Failed", "True", "SourceInvalid"),
            ("Ready", "False", "SourceInvalid"),
            ("Stalled", "True", "SourceInvalid"),
        ],
    ),
    "resumed": (
        resumed,
        [
            ACCEPTED,
            PLANNED,
            ("ClusterReady", "False", "WaitingForWorkers"),
            ("Complete", "False", "Starting"),
            ("Ready", "False", "WaitingForWorkers"),
            ("Reconciling", "True", "WaitingForWorkers"),
        ],
    ),
    "Succeeded": (
        succeeded,
        [ACCEPTED, PLANNED, ("Complete", "True", "Committed"), ("Ready", "True", "Committed")],
    ),
    "AlreadyComplete": (
        already_complete,
        [
            ACCEPTED,
            ("Planned", "True", "AlreadyComplete"),
            ("Complete", "True", "AlreadyComplete"),
            ("Ready", "True", "AlreadyComplete"),
        ],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_person_reads_few_conditions_whose_reasons_agree_with_their_status(case: str) -> None:
    make, rows = TABLE[case]
    found = make().status["conditions"]
    assert [(each["type"], each["status"], each["reason"]) for each in found] == rows


def test_the_condition_of_a_job_says_what_its_plan_found_and_how_many_workers_there_are() -> None:
    story = planned(suspend=True)
    said = {each["type"]: each["message"] for each in story.status["conditions"]}
    assert said["Planned"] == "3 files"
    story = running(workers={"replicas": 3})
    said = {each["type"]: each["message"] for each in story.status["conditions"]}
    assert said["ClusterReady"] == "0/3 workers are ready"


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    story = running()
    began = story.status["conditions"]
    story.pass_time(100)
    story.progress(2)
    assert {each["lastTransitionTime"] for each in story.status["conditions"]} == {
        each["lastTransitionTime"] for each in began
    }
    story.report(progress={"attempt": 1, "failure": failure(1, 4, "QuarantineExceeded")})
    times = {each["type"]: each["lastTransitionTime"] for each in story.status["conditions"]}
    assert times["Failed"] == times["Stalled"] == "2026-11-22T12:01:40Z"
    assert times["Planned"] == times["Complete"] == "2026-11-22T12:00:00Z"
