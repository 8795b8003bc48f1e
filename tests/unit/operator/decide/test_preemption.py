"""A RayJob that somebody else suspends and resumes, as Kueue preempts one: it waits, and nothing is counted."""

from __future__ import annotations

from itertools import count

import pytest

from support.cluster.story import Story, failure
from tokenization_operator.objects.kinds import Kind

RAY_JOB = "demo-r1-a1"
QUEUE = {"kueue.x-k8s.io/queue-name": "tpus"}
ROUNDS = 20

_numbers = count()


class Preempted:
    """KubeRay's part: each time the RayJob is resumed it gets another cluster, with another head."""

    def __init__(self, **spec: object) -> None:
        self.story = Story(dict(spec), labels=QUEUE)
        self.story.plan()
        self.head = ""

    def suspend(self) -> None:
        self.story.api.edit(Kind.RAY_JOB, RAY_JOB, {"spec": {"suspend": True}})
        self.story.settle()

    def take_away(self) -> None:
        """KubeRay deletes the cluster."""
        self._say(jobDeploymentStatus="Suspending")
        if self.head:
            self.story.api.remove(Kind.POD, self.head)
            self.head = ""
        self._say(jobDeploymentStatus="Suspended", jobStatus="", rayClusterName="")

    def resume(self) -> None:
        self.story.api.edit(Kind.RAY_JOB, RAY_JOB, {"spec": {"suspend": False}})
        self.start()

    def start(self) -> None:
        """KubeRay makes a cluster; its head begins."""
        cluster = f"{RAY_JOB}-{next(_numbers):05d}"
        self._say(jobDeploymentStatus="Initializing", jobStatus="", rayClusterName=cluster)
        self.head = f"{cluster}-head"
        labels = {"tokenization.dev/job": "demo", "ray.io/cluster": cluster, "ray.io/node-type": "head"}
        self.story.api.create(
            Kind.POD, {"metadata": {"name": self.head, "labels": labels}, "status": {"phase": "Running"}}
        )
        self.story.settle()

    def work(self, done: int) -> None:
        self._say(jobDeploymentStatus="Running", jobStatus="RUNNING")
        self.story.progress(done)

    def _say(self, **status: str) -> None:
        self.story.api.edit(Kind.RAY_JOB, RAY_JOB, status, is_status=True)
        self.story.settle()

    def require_one(self) -> None:
        assert self.story.made(Kind.RAY_JOB) == [RAY_JOB]
        assert self.story.names(Kind.RAY_JOB) == [RAY_JOB]
        assert self.story.status["attempt"]["number"] == 1
        assert "failures" not in self.story.status


@pytest.mark.parametrize("moment", ["starting", "running", "at the end"])
def test_it_waits_each_time_and_goes_on(moment: str) -> None:
    kueue = Preempted()
    kueue.start()
    for number in range(ROUNDS):
        if moment != "starting":
            kueue.work(4 if moment == "at the end" else min(3, number))
            assert kueue.story.where == ("Running", "Running")
            assert kueue.story.status["attempt"]["headPod"] == kueue.head
        kueue.suspend()
        assert kueue.story.where == ("Queued", "Queued")
        assert kueue.story.status["message"] == "waits in LocalQueue 'tpus'"
        kueue.require_one()
        kueue.take_away()
        assert kueue.story.where == ("Queued", "Queued")
        kueue.story.pass_time(10_000)
        kueue.require_one()
        kueue.resume()
        assert kueue.story.status["phase"] == "Starting"
        kueue.require_one()
    kueue.work(4)
    kueue.story.commit()
    assert kueue.story.where == ("Succeeded", "Committed")
    assert kueue.story.made(Kind.RAY_JOB) == [RAY_JOB]


def test_a_resumed_job_without_machines_is_given_up_in_its_time() -> None:
    """Kueue has admitted it, and no Pod comes: what its driver had counted before is no sign of life."""
    kueue = Preempted(startupDeadlineSeconds=600)
    kueue.start()
    kueue.work(2)
    kueue.suspend()
    kueue.take_away()
    kueue.story.pass_time(5000)
    kueue.story.api.edit(Kind.RAY_JOB, RAY_JOB, {"spec": {"suspend": False}})
    kueue.story.ray(jobDeploymentStatus="Initializing", jobStatus="")
    kueue.story.pass_time(590)
    assert kueue.story.status["phase"] == "Starting"
    kueue.story.pass_time(20)
    assert kueue.story.where == ("Retrying", "StartupDeadline")


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "not seen"])
def test_what_the_old_driver_reports_when_it_is_taken_away_is_not_counted(is_seen: bool) -> None:
    """Its workers were gone first. `is_seen`: the operator looks while the RayJob is suspended."""
    kueue = Preempted()
    kueue.start()
    kueue.work(2)
    head = kueue.head
    said = failure(1, 5, "WorkersLost") | {"pod": head}
    api, checkpoint = kueue.story.api, kueue.story.status["run"]["checkpoint"]
    api.edit(Kind.RAY_JOB, RAY_JOB, {"spec": {"suspend": True}})
    api.edit(Kind.CHECKPOINT, checkpoint, {"progress": {"attempt": 1, "failure": said}}, is_status=True)
    if is_seen:
        kueue.story.settle()
        assert kueue.story.where == ("Queued", "Queued")
        kueue.take_away()
    else:
        api.remove(Kind.POD, head)
        kueue.head = ""
    api.edit(Kind.RAY_JOB, RAY_JOB, {"spec": {"suspend": False}})
    status = {"jobDeploymentStatus": "Initializing", "jobStatus": "", "rayClusterName": f"{RAY_JOB}-new"}
    api.edit(Kind.RAY_JOB, RAY_JOB, status, is_status=True)
    kueue.story.settle()
    assert kueue.story.status["phase"] == "Starting"
    kueue.require_one()
    kueue.start()
    kueue.work(3)
    assert kueue.story.where == ("Running", "Running")
    said = failure(1, 5, "WorkersLost") | {"pod": kueue.head}
    kueue.story.report(progress={"attempt": 1, "failure": said})
    assert kueue.story.where == ("Retrying", "WorkersLost"), "that of the present driver counts"


def test_a_final_failure_ends_the_run_also_while_it_is_suspended() -> None:
    kueue = Preempted()
    kueue.start()
    kueue.work(2)
    kueue.suspend()
    kueue.story.report(progress={"attempt": 1, "failure": failure(1, 4, "QuarantineExceeded") | {"pod": kueue.head}})
    assert kueue.story.where == ("Failed", "QuarantineExceeded")


def test_a_suspended_ray_job_that_is_deleted_is_an_ordinary_loss() -> None:
    kueue = Preempted()
    kueue.start()
    kueue.work(2)
    kueue.suspend()
    kueue.story.api.remove(Kind.RAY_JOB, RAY_JOB)
    kueue.story.settle()
    assert kueue.story.where == ("Retrying", "RayJobGone")
