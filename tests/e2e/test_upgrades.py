"""An operator and a worker image one minor version apart execute a run together: in flight, both ways.

The next version is one that tests make of this tree (`next_version.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import wait_for

from e2e.faults import kill_pod, store_away
from e2e.images import ROOT, Image
from e2e.next_version import DATA_FIELD, NEXT_VARIABLE, NOTE, OTHER, version_of
from e2e.node import RealCluster
from e2e.release import Release, Version
from e2e.runs import NAME, RUN_S, TOO_LATE, Team
from e2e.steps import step
from tokenization_operator.kinds import Kind

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NEXT_VARIABLE not in os.environ, reason="the next version is built for all of e2e alone"),
]

NEXT = "next"


@pytest.fixture(scope="module")
def following(images: dict[str, Image]) -> Version:
    """The next version."""
    tree = Path(os.environ[NEXT_VARIABLE])
    return Version(tree / "charts" / "tokenization-operator", images["operator.next"].name, images["worker.next"].name)


@pytest.fixture(scope="module", autouse=True)
def back(release: Release, version: Version) -> Iterator[None]:
    """Other tests have the release of this tree."""
    yield
    release.use(version)


def change(release: Release, version: Version, team: Team) -> None:
    """Change the version under a run, which cannot end meanwhile."""
    with step("change the version of the release"), store_away():
        release.use(version)
    assert not team.is_committed(), TOO_LATE


def attempt_of(team: Team) -> tuple[int, str]:
    """The number of the attempt, and the UID of its RayJob: another one has another."""
    number = team.jobs.status(NAME)["attempt"]["number"]
    ray_job = team.jobs.get(f"{NAME}-r1-a{number}", Kind.RAY_JOB)
    return number, ray_job["metadata"]["uid"]


def lose_head(cluster: RealCluster, team: Team) -> None:
    """So that the operator that is there now begins another attempt, with the image of the run."""
    kill_pod(cluster, team, "head")
    with step("hear of HeadLost"):
        wait_for(lambda: [reason for _, reason, _ in team.jobs.events(NAME)], lambda told: "HeadLost" in told, RUN_S)
    assert not team.is_committed(), TOO_LATE


def finish(team: Team, expected: Path) -> dict[str, Any]:
    with step("reach Succeeded"):
        status = team.succeed(NAME)
    team.prove(expected)
    assert "NotUnderstood" not in [reason for _, reason, _ in team.jobs.events(NAME)]
    return status


def test_a_newer_image_executes_a_run_for_the_operator_before(
    release: Release, version: Version, following: Version, team: Team, expected: Path
) -> None:
    release.use(version)
    team.jobs.apply(NAME, team.spec(image=following.worker))
    status = finish(team, expected)
    assert status["run"]["workerVersion"] == version_of(Path(os.environ[NEXT_VARIABLE]))
    assert status["attempt"]["number"] == 1


def test_a_run_in_flight_goes_on_under_the_next_operator(
    cluster: RealCluster, release: Release, version: Version, following: Version, team: Team, expected: Path
) -> None:
    release.use(version)
    team.begin(replicas=1)
    attempt = attempt_of(team)
    change(release, following, team)
    with step("hear of the next operator"):
        team.jobs.wait(NAME, lambda status: status.get(NOTE) == NEXT, RUN_S)
    team.wait_for_ranges(team.count_done() + 1)
    assert attempt_of(team) == attempt, "it has not begun again"
    lose_head(cluster, team)
    status = finish(team, expected)
    assert status["attempt"]["number"] == 2
    assert status["run"]["image"] == version.worker, "a run keeps its image"
    assert status["run"]["workerVersion"] == version_of(ROOT)
    checkpoint = team.jobs.get(f"{NAME}-r1", Kind.CHECKPOINT)["spec"]
    assert checkpoint["attempt"][NOTE] == checkpoint[NOTE] == NEXT, "the older image has read this"


def test_an_older_image_executes_a_run_for_the_next_operator(
    release: Release, version: Version, following: Version, team: Team, expected: Path
) -> None:
    release.use(following)
    team.jobs.apply(NAME, team.spec(image=version.worker))
    status = finish(team, expected)
    assert status["run"]["workerVersion"] == version_of(ROOT)
    assert status["attempt"]["number"] == 1
    checkpoint = team.jobs.get(f"{NAME}-r1", Kind.CHECKPOINT)["spec"]
    assert checkpoint["run"][NOTE] == NEXT
    assert DATA_FIELD not in checkpoint["run"]["output"], "it has the value that it was born with"


def test_an_older_image_refuses_a_dataset_that_it_cannot_make(
    release: Release, version: Version, following: Version, team: Team
) -> None:
    release.use(following)
    spec = team.spec(image=version.worker)
    spec["output"][DATA_FIELD] = OTHER
    team.jobs.apply(NAME, spec)
    with step("reach Failed"):
        status = team.jobs.reach(NAME, "Failed", "WorkerTooOld", deadline_s=RUN_S)
    needed, found = version_of(Path(os.environ[NEXT_VARIABLE])), version_of(ROOT)
    assert f"needs a worker of tokenization {needed} or newer, and this image has {found}" in status["message"]
    assert "set spec.image of the job" in status["message"]
    assert team.jobs.names(Kind.RAY_JOB) == [], "in its plan, before it gets machines"


def test_a_run_in_flight_goes_on_under_the_operator_before(
    cluster: RealCluster, release: Release, version: Version, following: Version, team: Team, expected: Path
) -> None:
    release.use(following)
    team.begin(replicas=1)
    attempt = attempt_of(team)
    change(release, version, team)
    done = team.jobs.status(NAME)["progress"]["rangesCompleted"]
    with step("hear of the operator before"):
        status = team.jobs.wait(NAME, lambda status: status["progress"]["rangesCompleted"] > done, RUN_S)
    assert attempt_of(team) == attempt, "it has not begun again"
    assert {block.get(NOTE) for block in (status, status["run"], status["attempt"])} == {NEXT}, "what it does not know"
    lose_head(cluster, team)
    status = finish(team, expected)
    assert status["attempt"]["number"] == 2
    assert status["run"]["image"] == following.worker, "a run keeps its image"
    assert {block.get(NOTE) for block in (status, status["run"])} == {NEXT}
    assert NOTE not in status["attempt"], "another one has begun"
