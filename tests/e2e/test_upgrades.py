"""An operator and a worker image one minor version apart execute a run together: in flight, both ways.

The neighbours of this tree's version: the next one, which tests make of this tree (`next_version.py`), and the one
before, where this clone has its tag (`version_before.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.faults import kill_pod, store_away
from e2e.images import ROOT, Image
from e2e.next_version import DATA_FIELD, NEXT_VARIABLE, NOTE, OTHER, version_of
from e2e.node import RealCluster
from e2e.release import Release, Version
from e2e.runs import NAME, RUN_S, TOO_LATE, Team
from e2e.steps import step
from e2e.version_before import BEFORE_VARIABLE
from support.cluster.jobs import wait_for
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.e2e

WITH_NEXT = pytest.mark.skipif(NEXT_VARIABLE not in os.environ, reason="the next version is built for all of e2e alone")
WITH_BEFORE = pytest.mark.skipif(
    BEFORE_VARIABLE not in os.environ, reason="this clone has no tag of the minor version before: git fetch --tags"
)
NEXT = "next"


@dataclass(frozen=True)
class Pair:
    """Neighbouring versions. `has_note`: the newer one writes a field, `NOTE`, into everything."""

    older: Version
    newer: Version
    numbers: tuple[str, str]
    has_note: bool


@pytest.fixture(scope="module")
def following(version: Version, images: dict[str, Image]) -> Pair:
    """This version and the next one."""
    tree = Path(os.environ[NEXT_VARIABLE])
    newer = version_in(tree, images, "next")
    return Pair(version, newer, (version_of(ROOT), version_of(tree)), has_note=True)


@pytest.fixture(
    scope="module", params=[pytest.param("next", marks=WITH_NEXT), pytest.param("before", marks=WITH_BEFORE)]
)
def pair(request: pytest.FixtureRequest, version: Version, images: dict[str, Image]) -> Pair:
    """This version with each of its neighbours."""
    if request.param == "next":
        found: Pair = request.getfixturevalue("following")
        return found
    tree = Path(os.environ[BEFORE_VARIABLE])
    older = version_in(tree, images, "before")
    return Pair(older, version, (version_of(tree), version_of(ROOT)), has_note=False)


def version_in(tree: Path, images: dict[str, Image], name: str) -> Version:
    """That of another tree."""
    chart = tree / "charts" / "tokenization-operator"
    return Version(chart, images[f"operator.{name}"].name, images[f"worker.{name}"].name)


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
    """So that the operator that is there now begins another attempt, with the image of the run. The store is away."""
    kill_pod(cluster, team, "head")
    with step("hear of HeadLost"):
        wait_for(lambda: [reason for _, reason, _ in team.jobs.events(NAME)], lambda told: "HeadLost" in told, RUN_S)


def finish(team: Team, expected: Path) -> dict[str, Any]:
    with step("reach Succeeded"):
        status = team.succeed(NAME)
    team.prove(expected)
    assert "NotUnderstood" not in [reason for _, reason, _ in team.jobs.events(NAME)]
    return status


def test_a_newer_image_executes_a_run_for_the_operator_before(
    release: Release, pair: Pair, team: Team, expected: Path
) -> None:
    release.use(pair.older)
    team.jobs.apply(NAME, team.spec(replicas=1, image=pair.newer.worker))
    status = finish(team, expected)
    assert status["run"]["workerVersion"] == pair.numbers[1]
    assert status["attempt"]["number"] == 1


def test_a_run_in_flight_goes_on_under_the_next_operator(
    cluster: RealCluster, release: Release, pair: Pair, team: Team, expected: Path
) -> None:
    release.use(pair.older)
    team.begin(replicas=1)
    attempt = attempt_of(team)
    change(release, pair.newer, team)
    if pair.has_note:
        with step("hear of the next operator"):
            team.jobs.wait(NAME, lambda status: status.get(NOTE) == NEXT, RUN_S)
    team.wait_for_ranges(team.count_done() + 1)
    with store_away():
        assert attempt_of(team) == attempt, "it has not begun again"
        lose_head(cluster, team)
    assert not team.is_committed(), TOO_LATE
    status = finish(team, expected)
    assert status["attempt"]["number"] == 2
    assert status["run"]["image"] == pair.older.worker, "a run keeps its image"
    assert status["run"]["workerVersion"] == pair.numbers[0]
    if pair.has_note:
        checkpoint = team.jobs.get(f"{NAME}-r1", Kind.CHECKPOINT)["spec"]
        assert checkpoint["attempt"][NOTE] == checkpoint[NOTE] == NEXT, "the older image has read this"


def test_an_older_image_executes_a_run_for_the_next_operator(
    release: Release, pair: Pair, team: Team, expected: Path
) -> None:
    release.use(pair.newer)
    team.jobs.apply(NAME, team.spec(replicas=1, image=pair.older.worker))
    status = finish(team, expected)
    assert status["run"]["workerVersion"] == pair.numbers[0]
    assert status["attempt"]["number"] == 1
    if pair.has_note:
        run = team.jobs.get(f"{NAME}-r1", Kind.CHECKPOINT)["spec"]["run"]
        assert run[NOTE] == NEXT, "the older image has read this"
        assert DATA_FIELD not in run["output"], "it has the value that it was born with"


@WITH_NEXT
def test_an_older_image_refuses_a_dataset_that_it_cannot_make(release: Release, following: Pair, team: Team) -> None:
    release.use(following.newer)
    spec = team.spec(replicas=1, image=following.older.worker)
    spec["output"][DATA_FIELD] = OTHER
    team.jobs.apply(NAME, spec)
    with step("reach Failed"):
        status = team.jobs.reach(NAME, "Failed", "WorkerTooOld", deadline_s=RUN_S)
    found, needed = following.numbers
    assert f"needs a worker of tokenization {needed} or newer, and this image has {found}" in status["message"]
    assert "set spec.image of the job" in status["message"]
    assert team.jobs.names(Kind.RAY_JOB) == [], "in its plan, before it gets machines"


def test_a_run_in_flight_goes_on_under_the_operator_before(
    cluster: RealCluster, release: Release, pair: Pair, team: Team, expected: Path
) -> None:
    release.use(pair.newer)
    team.begin(replicas=1)
    attempt = attempt_of(team)
    change(release, pair.older, team)
    done = team.jobs.status(NAME)["progress"]["rangesCompleted"]
    team.wait_for_ranges(max(done, team.count_done()) + 1)
    with store_away():
        with step("hear of the operator before"):
            status = team.jobs.wait(NAME, lambda status: status["progress"]["rangesCompleted"] > done, RUN_S)
        assert attempt_of(team) == attempt, "it has not begun again"
        if pair.has_note:
            kept = [status, status["run"], status["attempt"]]
            assert [block.get(NOTE) for block in kept] == [NEXT] * 3, "it keeps what it does not know"
        lose_head(cluster, team)
    assert not team.is_committed(), TOO_LATE
    status = finish(team, expected)
    assert status["attempt"]["number"] == 2
    assert status["run"]["image"] == pair.newer.worker, "a run keeps its image"
    if pair.has_note:
        assert [block.get(NOTE) for block in (status, status["run"])] == [NEXT] * 2
        assert NOTE not in status["attempt"], "another one has begun"
