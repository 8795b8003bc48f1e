"""What breaks under a run on a real node changes no byte of what it writes."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.faults import kill_container, kill_pod, store_away
from e2e.node import RealCluster
from e2e.release import Release
from e2e.runs import NAME, RUN_S, TOO_LATE, Team, start_of
from e2e.steps import note, step
from support.cluster.jobs import wait_for
from testbed.control_plane import API_SERVER

pytestmark = pytest.mark.e2e

AWAY_S = 60


def finish(team: Team, expected: Path) -> dict[str, Any]:
    with step("reach Succeeded"):
        status = team.succeed(NAME)
    team.prove(expected)
    return status


@pytest.mark.core
def test_a_worker_that_is_killed_is_replaced(cluster: RealCluster, team: Team, expected: Path) -> None:
    team.begin()
    gone = kill_pod(cluster, team, "worker")
    with step("have two workers again"):
        workers = wait_for(lambda: team.pods(NAME, "worker"), lambda pods: len(pods) == 2)
    assert gone not in [pod["metadata"]["name"] for pod in workers]
    status = finish(team, expected)
    assert status["attempt"]["number"] == 1, "Ray's own workers may go"


def test_a_run_that_loses_its_only_worker_waits_for_the_next_one(
    cluster: RealCluster, team: Team, expected: Path
) -> None:
    team.begin(replicas=1)
    before = team.first_ranges()
    assert len(before) == 1
    gone = kill_pod(cluster, team, "worker")
    with step("let another one do a range"):
        after = wait_for(team.first_ranges, lambda first: len(first) == 2, RUN_S)
    [comer] = team.pods(NAME, "worker")
    assert comer["metadata"]["name"] != gone
    status = finish(team, expected)
    assert status["attempt"]["number"] == 1
    took = max(after.values()) - start_of(comer)
    note(f"{took.total_seconds():.0f} s from the start of its Pod to its first range")


@pytest.mark.core
def test_a_head_that_is_killed_begins_another_attempt(cluster: RealCluster, team: Team, expected: Path) -> None:
    team.begin()
    receipts = team.receipts()
    kill_pod(cluster, team, "head")
    with step("hear of HeadLost"):
        wait_for(lambda: [reason for _, reason, _ in team.jobs.events(NAME)], lambda told: "HeadLost" in told, RUN_S)
    assert not team.is_committed(), TOO_LATE
    status = finish(team, expected)
    assert status["attempt"]["number"] == 2
    assert receipts <= team.receipts(), "what was done has been done again"


def test_a_worker_that_runs_out_of_memory_is_named_with_numbers(
    cluster: RealCluster, team: Team, expected: Path
) -> None:
    """Control groups of version 2 kill a whole container; of version 1, one process, and the rest is done here."""
    team.begin()
    pod = team.pods(NAME, "worker")[0]
    hog = "x = [bytearray(b'1') * (64 << 20) for _ in range(64)]"
    said = cluster.kubectl("-n", team.jobs.namespace, "exec", pod["metadata"]["name"], "--", "python", "-c", hog)
    assert said.returncode == 137, said.stdout + said.stderr
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        kill_container(cluster, pod)
    with step("hear of WorkerMemory"):
        told = wait_for(
            lambda: [words for _, reason, words in team.jobs.events(NAME) if reason == "WorkerMemory"], bool, RUN_S
        )
    assert "its limit is 2Gi. Raise the limit" in told[0]
    finish(team, expected)


def test_a_run_goes_on_without_the_operator(release: Release, team: Team, expected: Path) -> None:
    team.begin()
    release.scale(0)
    away_until = time.monotonic() + AWAY_S
    try:
        assert not team.is_committed(), TOO_LATE
        with step("finish the dataset without the operator"):
            wait_for(team.is_committed, bool, RUN_S)
        time.sleep(max(0.0, away_until - time.monotonic()))
        assert team.jobs.status(NAME)["phase"] != "Succeeded"
    finally:
        release.scale(1)
    finish(team, expected)


def test_a_run_goes_on_without_the_api_server(cluster: RealCluster, team: Team, expected: Path) -> None:
    team.begin()
    cluster.processes.stop(API_SERVER, sign=signal.SIGKILL)
    try:
        assert not team.is_committed(), TOO_LATE
        with step("finish the dataset without the API server"):
            wait_for(team.is_committed, bool, RUN_S)
    finally:
        cluster.start_api_server_again()
    finish(team, expected)


def test_a_run_waits_for_its_object_store(team: Team, expected: Path) -> None:
    team.begin()
    with store_away():
        time.sleep(AWAY_S)  # not for luck: so long it is away
    assert not team.is_committed(), TOO_LATE
    status = finish(team, expected)
    assert status["attempt"]["number"] == 1


def test_an_image_that_is_not_there_is_named_and_can_be_corrected(team: Team, expected: Path) -> None:
    wrong = "localhost/no-such-image:1"
    team.jobs.apply(NAME, team.spec(image=wrong))
    with step("reach ImagePullFailed"):
        status = team.jobs.wait(NAME, lambda status: status.get("reason") == "ImagePullFailed", RUN_S)
    assert wrong in status["message"]
    team.jobs.edit(NAME, {"image": None})
    finish(team, expected)


def test_a_release_may_be_upgraded_under_a_run(
    cluster: RealCluster, release: Release, team: Team, expected: Path
) -> None:
    team.begin()
    image = team.jobs.status(NAME)["run"]["image"]
    tagged = cluster.ctr("images", "tag", image, f"{image}-next")
    assert not tagged.returncode, tagged.stderr
    try:
        with step("upgrade the release to another image of workers"), store_away():
            release.upgrade("--set", f"worker.image.tag={image.rpartition(':')[2]}-next")
        assert not team.is_committed(), TOO_LATE
        status = finish(team, expected)
        assert status["attempt"]["number"] == 1
        assert status["run"]["image"] == image, "a run keeps its image"
        team.jobs.apply("next", team.spec("next"))
        assert team.jobs.wait("next", lambda status: "run" in status)["run"]["image"] == f"{image}-next"
    finally:
        release.upgrade()
