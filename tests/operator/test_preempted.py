"""Kueue's part on a real control plane: it suspends a RayJob that has machines, and resumes it later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.cluster.jobs import Jobs, local_spec, text_files, wait_for
from support.cluster.operators import NEVER_AGAIN
from support.runs import difference
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.testbed

OPERATOR_OPTIONS = NEVER_AGAIN
QUEUE = {"kueue.x-k8s.io/queue-name": "tpus"}
ROUNDS = 20


class Kueue:
    """Preempts the first attempt of a job."""

    def __init__(self, team: Jobs, name: str) -> None:
        self._team = team
        self._name = name
        self.ray_job = f"{name}-r1-a1"

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._team.get(self.ray_job, Kind.RAY_JOB).get("status") or {}
        return found

    def wait_for_cluster(self) -> None:
        wait_for(lambda: self.ray_job in self._team.names(Kind.RAY_JOB), bool)
        wait_for(self.status, lambda status: bool(status.get("rayClusterName")))

    def wait_for_driver(self) -> None:
        wait_for(self.status, lambda status: status.get("jobStatus") == "RUNNING")
        self._team.wait(self._name, lambda status: bool((status.get("attempt") or {}).get("headPod")))

    def preempt(self) -> None:
        """Until KubeRay has taken the cluster away."""
        self._team.patch(Kind.RAY_JOB, self.ray_job, {"spec": {"suspend": True}})
        self._team.reach(self._name, "Queued")
        wait_for(self.status, lambda status: status.get("jobDeploymentStatus") == "Suspended")

    def admit(self) -> None:
        self._team.patch(Kind.RAY_JOB, self.ray_job, {"spec": {"suspend": False}})

    def require_uncounted(self, uid: str) -> None:
        status = self._team.status(self._name)
        assert "failures" not in status
        assert "lastFailures" not in status
        assert status["attempt"]["number"] == 1
        assert self._team.get(self.ray_job, Kind.RAY_JOB)["metadata"]["uid"] == uid
        assert self._team.count_attempts(self._name) == 1


@pytest.mark.core
def test_a_ray_job_that_is_preempted_waits_and_goes_on(team: Jobs, tmp_path: Path) -> None:
    team.apply("waits", local_spec(tmp_path, image="testbed/worker:plan-run.driver-hold"), labels=QUEUE)
    kueue = Kueue(team, "waits")
    kueue.wait_for_cluster()
    uid = team.get(kueue.ray_job, Kind.RAY_JOB)["metadata"]["uid"]
    for is_running in (False, True, True):
        if is_running:
            kueue.wait_for_driver()
        kueue.preempt()
        kueue.require_uncounted(uid)
        kueue.admit()
        team.reach("waits", "Starting")
    kueue.wait_for_driver()
    kueue.require_uncounted(uid)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_job_that_is_preempted_again_and_again_makes_the_dataset(team: Jobs, tmp_path: Path) -> None:
    """While it starts, while it works, and near its end."""
    text_files(tmp_path / "src", 40)
    team.apply("alone", local_spec(tmp_path, output={"uri": f"file://{tmp_path}/alone"}, rangeBytes="64Ki"))
    team.apply("again", local_spec(tmp_path, rangeBytes="64Ki"), labels=QUEUE)
    kueue = Kueue(team, "again")
    kueue.wait_for_cluster()
    uid = team.get(kueue.ray_job, Kind.RAY_JOB)["metadata"]["uid"]
    for number in range(ROUNDS):
        if number % 3:
            kueue.wait_for_driver()
        kueue.preempt()
        kueue.require_uncounted(uid)
        kueue.admit()
        kueue.wait_for_cluster()
    status = team.reach("again", "Succeeded")
    kueue.require_uncounted(uid)
    assert status["attempt"]["number"] == 1
    team.reach("alone", "Succeeded")
    assert difference(tmp_path / "out", tmp_path / "alone") is None
