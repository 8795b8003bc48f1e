"""The life of a job, step by step, on an API server in memory."""

from __future__ import annotations

import json

import pytest

from support.cluster.story import NAME, Story, failure, killed_before_the_cluster, planned, running
from tokenization_operator.informer.cache import Cache
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.observe.observation import KubeRay


def test_a_job_is_planned_gets_its_cluster_runs_and_succeeds() -> None:
    story = Story()
    assert story.where == ("Planning", "Planning")
    assert story.names(Kind.PLAN_JOB) == ["demo-r1-p1"]
    assert story.names(Kind.CHECKPOINT) == ["demo-r1"]
    story.plan()
    assert story.where == ("Starting", "WaitingForWorkers")
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.run(2)
    assert story.where == ("Running", "Running")
    assert story.status["progress"]["percent"] == 50
    [checkpoint] = story.api.of(Kind.CHECKPOINT)
    assert checkpoint["spec"]["writerPodPrefix"] == "demo-r1-a1-abcde-head"
    assert checkpoint["spec"]["attempt"]["number"] == 1
    story.commit()
    assert story.where == ("Succeeded", "Committed")
    assert story.status["output"]["indexUri"] == "gs://tokens/demo/index.json"
    assert story.status["progress"]["percent"] == 100
    conditions = story.conditions
    assert conditions["Ready"] == conditions["Complete"] == "True"
    assert conditions["Reconciling"] == conditions["Failed"] == conditions["Stalled"] == "False"


def test_a_complete_dataset_needs_no_cluster() -> None:
    story = Story()
    story.report(plan={"alreadyComplete": True, "planId": "p"}, committed=None)
    story.commit()
    assert story.where == ("Succeeded", "AlreadyComplete")
    assert story.made(Kind.RAY_JOB) == []


@pytest.mark.parametrize(
    ("code", "phase"), [(2, "Failed"), (3, "Failed"), (4, "Failed"), (1, "Retrying"), (5, "Retrying")]
)
def test_a_plan_that_fails_ends_the_run_or_is_tried_again(code: int, phase: str) -> None:
    story = Story()
    story.plan_fails(code, "SourceInvalid")
    assert story.where == (phase, "SourceInvalid")
    assert "mend" in story.status["message"]
    story.pass_time(60)
    assert story.names(Kind.PLAN_JOB)[-1:] == ([] if phase == "Failed" else ["demo-r1-p2"])


def test_application_failures_without_progress_end_a_run() -> None:
    story = running(backoffLimit=2)
    for attempt in (1, 2, 3):
        assert story.names(Kind.RAY_JOB) == [f"demo-r1-a{attempt}"]
        story.driver_fails(1, "Bug")
        story.pass_time(700)
    assert story.where == ("Failed", "Bug")
    assert [each["attempt"] for each in story.status["lastFailures"]] == [3, 2, 1]
    assert story.names(Kind.RAY_JOB) == []


def test_progress_forgives_application_failures() -> None:
    story = running(backoffLimit=1)
    for done in (1, 2, 3):
        story.progress(done)
        story.driver_fails(1, "Bug")
        assert story.where == ("Retrying", "Bug")
        story.pass_time(700)
        story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1", "demo-r1-a2", "demo-r1-a3", "demo-r1-a4"]


def test_what_cannot_pass_ends_a_run_at_once_and_a_change_resumes_it() -> None:
    story = running()
    story.driver_fails(4, "QuarantineExceeded")
    assert story.where == ("Failed", "QuarantineExceeded")
    story.edit(suspend=False, ttlSecondsAfterFinished=10**6)
    assert story.where == ("Failed", "QuarantineExceeded"), "neither matters for an attempt"
    story.edit(maxQuarantined="50%")
    assert story.status["run"]["number"] == 1
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]


def test_a_deleted_ray_job_is_a_lost_attempt() -> None:
    story = running()
    story.api.remove(Kind.RAY_JOB, "demo-r1-a1")
    story.settle()
    assert story.where == ("Retrying", "RayJobGone")
    story.pass_time(30)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]


def test_a_stopped_job_is_complete_for_kuberay_and_no_success() -> None:
    story = running()
    story.ray(jobDeploymentStatus="Complete", jobStatus="STOPPED")
    assert story.where == ("Retrying", "RayJobStopped")


def test_a_commit_outranks_what_kuberay_says() -> None:
    story = running()
    story.api.edit(Kind.RAY_JOB, "demo-r1-a1", {"jobDeploymentStatus": "Failed"}, is_status=True)
    story.commit()
    assert story.where == ("Succeeded", "Committed")


def test_an_end_without_a_commit_is_no_success() -> None:
    story = running()
    story.ray(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime="2026-11-22T12:00:00Z")
    assert story.where == ("Running", "Finishing")
    story.pass_time(61)
    assert story.where == ("Retrying", "CommitMissing")


@pytest.mark.parametrize("wrong", [{"jobUid": "another"}, {"run": 2}, {"runKey": "another"}])
def test_a_namesakes_commit_is_none(wrong: dict[str, object]) -> None:
    story = running()
    story.commit(**wrong)
    assert story.where == ("Running", "Running")


def test_the_end_of_a_run_is_not_taken_for_that_of_the_next() -> None:
    """A RayJob takes its time to go; who asks meanwhile whether the new commit is healthy must not be told yes."""
    story = running()
    story.commit()
    assert (story.where, len(story.names(Kind.RAY_JOB))) == (("Succeeded", "Committed"), 1)
    story.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": "2"}})
    story.reconcile()
    assert (story.where, story.status["observedGeneration"]) == (("Succeeded", "Committed"), 1)
    story.settle()
    assert (story.where, story.status["observedGeneration"]) == (("Planning", "Planning"), 2)
    assert story.status["run"]["number"] == 2


def test_a_new_token_begins_a_new_run_when_the_old_one_is_gone() -> None:
    story = running()
    story.edit(rerunToken="2")
    assert story.status["run"]["number"] == 2
    assert story.names(Kind.RAY_JOB) == []
    assert story.names(Kind.PLAN_JOB) == ["demo-r2-p1"]
    story.plan()
    assert story.names(Kind.RAY_JOB) == ["demo-r2-a1"]
    story.commit()
    story.edit(rerunToken=None)
    assert story.where == ("Succeeded", "Committed"), "removing the token is no new run"
    assert story.status["run"]["number"] == 2


def test_a_correction_before_there_is_a_plan_begins_a_new_run() -> None:
    story = Story()
    story.edit(source={"uris": ["gs://corpus/right/*.parquet"]})
    assert story.status["run"]["number"] == 2
    assert story.names(Kind.PLAN_JOB) == ["demo-r2-p1"]


def test_a_suspended_job_is_planned_and_waits() -> None:
    story = planned(suspend=True)
    assert story.where == ("Suspended", "Suspended")
    assert story.made(Kind.RAY_JOB) == []
    story.edit(suspend=False)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.run(2)
    story.edit(suspend=True)
    asked = story.api.calls
    story.reconcile()
    assert story.api.calls == asked, "a job that waits for its user costs the API server nothing"
    assert story.where == ("Suspended", "Suspended")
    assert story.names(Kind.RAY_JOB) == []
    story.edit(suspend=False)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]
    assert story.status.get("failures") is None


def test_machines_that_do_not_come_are_asked_for_again_with_fewer() -> None:
    story = planned(workers={"replicas": 4, "minReplicas": 1}, startupDeadlineSeconds=100)
    story.ray(jobDeploymentStatus="Initializing")
    story.pass_time(101)
    assert story.where == ("Retrying", "StartupDeadline")
    story.pass_time(60)
    assert story.status["attempt"]["number"] == 2


def test_a_run_without_new_ranges_is_restarted() -> None:
    story = running(stallTimeoutSeconds=600)
    story.pass_time(500)
    story.progress(2)
    story.pass_time(599)
    assert story.where == ("Running", "Running")
    story.pass_time(2 + 60)  # a report comes each minute by then
    assert story.where == ("Retrying", "Stalled")


def test_a_run_has_a_deadline() -> None:
    story = running(activeDeadlineSeconds=1000)
    story.pass_time(1001)
    assert story.where == ("Failed", "DeadlineExceeded")
    assert story.names(Kind.RAY_JOB) == []


def test_a_namespace_that_is_not_prepared_is_named_until_it_is() -> None:
    story = Story({"serviceAccountName": "nobody"})
    assert story.where == ("Planning", "NamespaceNotPrepared")
    assert "'nobody'" in story.status["message"]
    story.api.accounts.add("nobody")
    story.settle()
    assert story.names(Kind.PLAN_JOB) == ["demo-r1-p1"]


def test_an_operator_that_sees_what_was_makes_nothing() -> None:
    """One that has slept: the attempt that it would begin was begun by another, has failed and is gone."""
    story = killed_before_the_cluster()
    sleeper = story.another_operator()
    story.restart()
    story.settle()
    story.driver_fails(5, "StorageFailed")
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]
    assert story.names(Kind.RAY_JOB) == []
    sleeper.reconcile()
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]


def test_a_job_that_is_corrected_before_it_has_a_ray_job_gets_the_next_attempt_at_once() -> None:
    story = killed_before_the_cluster()
    story.restart()
    story.api.edit(Kind.JOB, NAME, {"spec": {"image": "worker:2"}})
    assert story.reconcile() == 0.0
    assert story.where == ("Pending", "SpecChanged")
    story.settle()
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a2"]


def head_pod(story: Story, name: str) -> None:
    """KubeRay makes a head, and it becomes ready."""
    [ray_job] = story.names(Kind.RAY_JOB)
    labels = {"tokenization.dev/job": "demo", "ray.io/cluster": f"{ray_job}-abcde", "ray.io/node-type": "head"}
    story.api.create(Kind.POD, {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}})
    story.settle()


def test_a_head_that_is_replaced_ends_the_attempt() -> None:
    story = planned()
    head_pod(story, "head-1")
    story.run(2)
    assert story.status["attempt"]["headPod"] == "head-1"
    story.api.remove(Kind.POD, "head-1")
    head_pod(story, "head-2")
    assert story.where == ("Retrying", "HeadLost")
    assert "head Pod head-1 no longer exists" in story.status["message"]
    assert story.names(Kind.RAY_JOB) == []


def test_a_ray_job_that_the_watch_has_not_brought_yet_is_not_gone() -> None:
    story = running()
    cache = Cache()
    for kind in (Kind.JOB, Kind.CHECKPOINT):
        for item in story.api.of(kind):
            cache.put(kind, item)
    story.another_operator(cache).reconcile()
    assert story.where == ("Running", "Running")


def test_a_status_is_small_whatever_happens() -> None:
    story = running(backoffLimit=100)
    for _ in range(6):
        story.report(
            progress={
                "attempt": story.status["attempt"]["number"],
                "rangesTotal": 10**6,
                "rangesCompleted": 5 * 10**5,
                "completedRanges": [{"start": 10**5 + 2 * n, "end": 10**5 + 2 * n + 1} for n in range(64)],
                "rangesTruncated": True,
                "percent": 50,
                "tokens": 10**13,
                "failure": failure(story.status["attempt"]["number"], 1, "Bug") | {"message": "long " * 800},
            }
        )
        story.pass_time(700)
    story.report(progress={"attempt": story.status["attempt"]["number"], "failure": None})
    assert len(story.status["lastFailures"]) == 5
    assert len(json.dumps(story.status)) < 16 << 10


@pytest.mark.parametrize(
    ("kuberay", "reason"), [(KubeRay.MISSING, "KubeRayUnavailable"), (KubeRay.TOO_OLD, "KubeRayTooOld")]
)
def test_without_a_kuberay_that_locks_its_dashboards_there_is_no_ray_job(kuberay: KubeRay, reason: str) -> None:
    story = Story()
    story.api.kuberay = kuberay
    story.plan()
    assert story.where == ("Pending", reason)
    assert story.made(Kind.RAY_JOB) == []
    accepted = next(each for each in story.status["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    story.api.kuberay = KubeRay.AVAILABLE
    story.settle()
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]


def test_a_job_of_another_version_says_so_and_is_left_alone() -> None:
    story = running()
    story.edit(surprise=1)
    made = list(story.api.made)
    assert story.where == ("Running", "NotUnderstood")
    assert "cannot read the job; upgrade the operator" in story.status["message"]
    assert "surprise" in story.status["message"]
    assert story.status["run"]["number"] == 1, "what was known is kept"
    accepted = next(each for each in story.status["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "NotUnderstood")
    story.progress(3)
    assert [reason for reason, _ in story.api.events].count("NotUnderstood") == 1
    assert story.api.made == made
    story.edit(surprise=None)
    assert story.where == ("Running", "Running")


def test_a_finished_job_of_another_version_is_left_as_it_is() -> None:
    story = running()
    story.commit()
    before = story.status
    story.edit(surprise=1)
    assert story.status == before
