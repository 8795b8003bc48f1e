"""What counts against a job while it waits, and what it says meanwhile, on an API server in memory."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.cluster.fake_api import NAMESPACE, Killed, deliver
from support.cluster.story import NAME, SETTINGS, Story, failure, killed_before_the_cluster, manifest, planned, running
from tokenization_operator.decide.next_step import SOON_S
from tokenization_operator.informer.cache import Cache
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import QUEUE_LABEL
from tokenization_operator.objects.reading import is_leaving
from tokenization_operator.observe.observation import KubeRay
from tokenization_worker.api.types.times import time_text

HOUR_S = 3600


def test_time_in_a_queue_does_not_count_for_the_start() -> None:
    story = planned(startupDeadlineSeconds=HOUR_S)
    story.ray(jobDeploymentStatus="Suspended")
    assert story.where == ("Queued", "Queued")
    story.pass_time(100 * HOUR_S)
    assert story.where == ("Queued", "Queued")
    story.ray(jobDeploymentStatus="Initializing")
    assert story.where[0] == "Starting"
    story.pass_time(HOUR_S - 1)
    assert story.where[0] == "Starting"
    story.pass_time(2)
    assert story.where == ("Retrying", "StartupDeadline")


def test_there_is_quota_from_when_the_cluster_may_be_made() -> None:
    story = killed_before_the_cluster(labels={QUEUE_LABEL: "low"})
    assert story.conditions["QuotaReserved"] == "False"
    story.restart()
    story.settle()
    story.ray(jobDeploymentStatus="Suspended")
    assert story.conditions["QuotaReserved"] == "False"
    story.ray(jobDeploymentStatus="Initializing")
    assert story.conditions["QuotaReserved"] == "True"
    story.ray(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed")
    assert story.conditions["QuotaReserved"] == "False", "an attempt that is over has none"
    story.api.accounts.clear()
    story.pass_time(HOUR_S)
    assert story.where == ("Starting", "NamespaceNotPrepared")
    assert story.conditions["QuotaReserved"] == "False", "none before there is a RayJob"


def test_time_in_a_queue_or_suspended_is_no_time_of_the_run() -> None:
    story = planned(activeDeadlineSeconds=HOUR_S)
    story.ray(jobDeploymentStatus="Suspended")
    story.pass_time(2 * HOUR_S)
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    story.progress(1)
    assert story.where == ("Running", "Running")
    story.edit(suspend=True)
    story.pass_time(2 * HOUR_S)
    assert story.where == ("Suspended", "Suspended")
    story.edit(suspend=False)
    story.run(2)
    assert story.where == ("Running", "Running")
    story.pass_time(HOUR_S + 1)
    assert story.where == ("Failed", "DeadlineExceeded")


def test_time_in_a_queue_before_the_plan_is_no_time_of_the_run() -> None:
    story = Story({"activeDeadlineSeconds": HOUR_S})
    [name] = story.names(Kind.PLAN_JOB)
    story.api.edit(Kind.PLAN_JOB, name, {"spec": {"suspend": True}})
    story.settle()
    story.pass_time(2 * HOUR_S)
    story.api.edit(Kind.PLAN_JOB, name, {"spec": {"suspend": False}})
    story.settle()
    assert story.where == ("Planning", "Planning")
    story.plan()
    assert story.where[0] == "Starting"


def test_a_resumed_job_has_all_its_time_though_the_cluster_is_not_ready() -> None:
    story = planned(activeDeadlineSeconds=HOUR_S, suspend=True)
    story.pass_time(2 * HOUR_S)
    story.api.kuberay = KubeRay.MISSING
    story.edit(suspend=False)
    assert story.where == ("Pending", "KubeRayUnavailable")
    story.pass_time(60)
    assert story.where == ("Pending", "KubeRayUnavailable")


def test_machines_that_took_long_leave_the_driver_all_its_time() -> None:
    story = planned(startupDeadlineSeconds=HOUR_S, stallTimeoutSeconds=1800)
    story.ray(jobDeploymentStatus="Initializing")
    story.pass_time(HOUR_S - 10)
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    story.pass_time(1790)
    assert story.where[0] == "Starting"
    story.pass_time(11 + 60)
    assert story.where == ("Retrying", "Stalled")
    assert "none since the driver began at" in story.status["message"]


def test_why_an_attempt_ended_stays_in_the_status_until_the_next_one() -> None:
    story = planned()
    story.run(1)
    story.ray(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed", message="lost")
    assert story.where == ("Retrying", "AppFailed")
    assert "the next try begins at" in story.status["message"]


def test_failures_before_any_report_forgive_nothing() -> None:
    story = planned(backoffLimit=3)
    for number in range(1, 12):
        story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
        report = {"attempt": number, "failure": failure(number, 1, "Broken")}
        counts = (
            {"rangesTotal": None, "rangesCompleted": None} if number % 2 else {"rangesTotal": 4, "rangesCompleted": 2}
        )
        story.report(progress=report | counts)
        if story.where[0] == "Failed":
            break
        story.pass_time(700)
    assert story.where == ("Failed", "Broken")
    assert story.status["failures"]["application"] == 4


def test_a_plan_that_kueue_holds_is_queued() -> None:
    story = Story()
    [name] = story.names(Kind.PLAN_JOB)
    story.api.edit(Kind.PLAN_JOB, name, {"spec": {"suspend": True}})
    story.settle()
    assert story.where == ("Queued", "Queued")
    story.api.edit(Kind.PLAN_JOB, name, {"spec": {"suspend": False}})
    story.settle()
    assert story.where == ("Planning", "Planning")


def pull_fails(story: Story, kind: Kind) -> None:
    [owner] = story.names(kind)
    labels = {"job-name": owner, "batch.kubernetes.io/job-name": owner, "tokenization.dev/job": "demo"}
    if kind is Kind.RAY_JOB:
        story.ray(jobDeploymentStatus="Initializing")
        labels = {"ray.io/cluster": f"{owner}-abcde", "ray.io/node-type": "head", "tokenization.dev/job": "demo"}
    waiting = {"name": "x", "image": "worker:1", "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}}}
    story.api.create(
        Kind.POD,
        {
            "kind": "Pod",
            "metadata": {"name": f"{owner}-pod", "labels": labels},
            "spec": {"containers": [{"name": "x", "image": "worker:1"}]},
            "status": {"phase": "Pending", "containerStatuses": [waiting]},
        },
    )
    story.settle()
    assert story.where[1] == "ImagePullFailed"


@pytest.mark.parametrize("kind", [Kind.PLAN_JOB, Kind.RAY_JOB])
def test_corrected_pull_secrets_begin_again_at_once(kind: Kind) -> None:
    story = Story() if kind is Kind.PLAN_JOB else planned()
    pull_fails(story, kind)
    [name] = story.names(kind)
    story.edit(imagePullSecrets=[{"name": "registry"}])
    assert story.names(kind) != [name]
    assert "failures" not in story.status or not story.status["failures"].get("infrastructure")


def test_an_image_that_is_named_no_more_gives_way_to_the_default() -> None:
    story = Story({"image": "wrong:1"})
    pull_fails(story, Kind.PLAN_JOB)
    [name] = story.names(Kind.PLAN_JOB)
    story.edit(image=None)
    [job] = story.api.of(Kind.PLAN_JOB)
    assert job["metadata"]["name"] != name
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == SETTINGS.image


def test_an_account_that_is_named_while_an_attempt_waits_is_that_of_the_next() -> None:
    story = planned()
    story.ray(jobDeploymentStatus="Suspended", rayClusterName=None)
    story.api.accounts.add("another")
    story.edit(serviceAccountName="another")
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    [checkpoint] = story.api.of(Kind.CHECKPOINT)
    assert checkpoint["spec"]["writerPodPrefix"] == "demo-r1-a2-abcde-head"
    assert checkpoint["spec"]["writerServiceAccount"] == "another"


def test_a_ray_job_that_comes_late_goes() -> None:
    story = planned()
    story.run(1)
    [late] = story.names(Kind.RAY_JOB)
    story.ray(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed")
    story.pass_time(700)
    [current] = story.names(Kind.RAY_JOB)
    assert current != late
    body = {**story.api.objects[Kind.RAY_JOB, current], "status": {}}
    body["metadata"] = {**body["metadata"], "name": late}
    story.api.create(Kind.RAY_JOB, body)
    story.reconcile()
    assert is_leaving(story.api.objects[Kind.RAY_JOB, late])
    story.settle()
    assert story.names(Kind.RAY_JOB) == [current]


def test_an_unreadable_job_that_is_gone_is_forgotten() -> None:
    story = planned()
    story.api.edit(Kind.JOB, "demo", {"spec": {"surprise": 1}})
    deliver(story.api, story.cache)
    story.api.remove(Kind.JOB, "demo")
    story.api.news.clear()
    assert story.reconcile() is None
    assert story.cache.get(Kind.JOB, NAMESPACE, "demo") is None


def test_a_job_that_is_gone_is_forgotten() -> None:
    story = planned(startupDeadlineSeconds=10)
    story.api.remove(Kind.JOB, "demo")
    story.api.news.clear()  # while no watch is open
    story.now += timedelta(seconds=11)
    assert story.reconcile() is None
    assert story.cache.get(Kind.JOB, NAMESPACE, "demo") is None


def test_what_no_watch_tells_is_asked_for_soon_and_a_run_that_goes_on_is_left_alone() -> None:
    story = Story({})
    assert story.where[0] == "Planning"
    assert story.reconcile() == SOON_S
    story.plan()
    assert story.where[0] == "Starting"
    assert story.reconcile() == SOON_S
    story.run(1)
    assert story.reconcile() == 1800 + 15, "when it would be stalled"
    story.ray(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime=time_text(story.now))
    assert story.where == ("Running", "Finishing")
    assert story.reconcile() == SOON_S
    story.commit()
    assert story.where[0] == "Succeeded"


def test_an_attempt_begins_when_the_ray_job_of_the_last_one_is_gone() -> None:
    story = planned()
    story.run(1)
    story.api.edit(Kind.RAY_JOB, "demo-r1-a1", {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, is_status=True)
    story.reconcile()
    assert is_leaving(story.api.of(Kind.RAY_JOB)[0])
    story.now += timedelta(seconds=HOUR_S)
    for _ in range(3):
        story.reconcile()
        assert story.status["attempt"]["number"] == 1
        assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.settle()
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]


@pytest.mark.parametrize(
    ("edit", "phase"),
    [({"suspend": True}, "Suspending"), ({"rerunToken": "2", "output": {"uri": "gs://tokens/2"}}, "Starting")],
    ids=["suspended", "run again"],
)
def test_a_ray_job_of_which_nothing_is_known_yet_goes_before_all_else(edit: dict[str, object], phase: str) -> None:
    story = planned()
    story.api.edit(Kind.JOB, "demo", {"status": {"attempt": {"rayJobName": None}}})
    cache = Cache()
    for kind in (Kind.JOB, Kind.CHECKPOINT, Kind.PLAN_JOB):
        for item in story.api.of(kind):
            cache.put(kind, item)
    cache.put(Kind.JOB, story.api.edit(Kind.JOB, "demo", {"spec": edit}))
    story.another_operator(cache).reconcile()
    assert story.where[0] == phase
    assert all(map(is_leaving, story.api.of(Kind.RAY_JOB)))
    assert story.made(Kind.PLAN_JOB) == ["demo-r1-p1"]


def test_a_namesake_with_another_spec_is_another_job() -> None:
    story = Story({"tokenizer": {"name": "gpt2"}})
    story.api.remove(Kind.JOB, "demo")
    deliver(story.api, story.cache)
    story.api.create(Kind.JOB, manifest({"suspend": True}) | {"metadata": {"name": "demo"}})
    story.settle()
    story.plan()
    assert story.where == ("Suspended", "Suspended")
    story.api.edit(Kind.JOB, "demo", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    story.edit(suspend=False)
    [ray_job] = story.api.of(Kind.RAY_JOB)
    assert ray_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"


@pytest.mark.parametrize("minutes", [2, 60])
def test_a_run_is_stalled_only_once_its_reports_could_show_progress(minutes: int) -> None:
    story = planned(stallTimeoutSeconds=600)
    story.run(1)
    story.now += timedelta(minutes=minutes)
    story.progress(2)
    assert story.where == ("Running", "Running"), "a range of this very second"
    story.pass_time(600 + 6)
    assert story.where == ("Running", "Running"), "the next report may have one"
    story.pass_time(60)
    assert story.where == ("Retrying", "Stalled")


def test_a_checkpoint_of_other_data_is_not_taken_after_the_status_was_wiped() -> None:
    story = planned(rerunToken="1")
    story.run()
    story.commit()
    assert story.where == ("Succeeded", "Committed")
    del story.api.objects[Kind.JOB, NAME]["status"]
    story.restart()
    story.edit(rerunToken="2", source={"uris": ["gs://corpus/other/"]})
    run = story.status["run"]
    assert (run["number"], run["checkpoint"], story.where) == (2, "demo-r2", ("Planning", "Planning"))
    made = story.api.objects[Kind.CHECKPOINT, "demo-r2"]["spec"]["run"]
    assert (made["runKey"], made["source"]["uris"]) == (run["runKey"], ["gs://corpus/other/"])


def test_the_checkpoint_of_the_same_run_is_taken_after_the_status_was_wiped() -> None:
    story = planned(rerunToken="1")
    story.run()
    story.commit()
    del story.api.objects[Kind.JOB, NAME]["status"]
    story.restart()
    story.settle()
    assert (story.status["run"]["number"], story.where) == (1, ("Succeeded", "Committed"))


def test_an_operator_that_was_frozen_in_a_pause_deletes_no_newer_attempt() -> None:
    story = running()
    story.driver_fails(5, "StorageFailed")
    assert story.where[0] == "Retrying"
    frozen = story.another_operator()
    story.pass_time(HOUR_S)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]
    frozen.reconcile()
    assert not is_leaving(story.api.objects[Kind.RAY_JOB, "demo-r1-a2"])


def test_an_operator_that_was_frozen_past_a_ttl_deletes_no_job_that_runs_again() -> None:
    story = running(ttlSecondsAfterFinished=60, rerunToken="1")
    story.commit()
    frozen = story.another_operator()
    story.edit(rerunToken="2")
    story.now += timedelta(seconds=120)
    frozen.reconcile()
    assert (Kind.JOB, NAME) in story.api.objects
    assert story.status["run"]["number"] == 2


def test_a_job_that_is_to_run_again_just_before_its_deletion_stays() -> None:
    story = running(ttlSecondsAfterFinished=60, rerunToken="1")
    story.commit()
    story.now += timedelta(seconds=120)
    edit = {"spec": {"rerunToken": "2"}}
    story.another_operator().reconcile_while(lambda: story.api.edit(Kind.JOB, NAME, edit), calls=1)
    assert (Kind.JOB, NAME) in story.api.objects


@pytest.mark.parametrize("calls", [1, 2], ids=["before it is read again", "before it is deleted"])
def test_a_ray_job_that_has_changed_since_is_looked_at_again(calls: int) -> None:
    story = running()
    story.commit()
    story.now += timedelta(seconds=120)  # its cluster outlives its dataset
    sleeper = story.another_operator()
    name = story.names(Kind.RAY_JOB)[0]
    ended = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    sleeper.reconcile_while(lambda: story.api.edit(Kind.RAY_JOB, name, ended, is_status=True), calls=calls)
    assert not is_leaving(story.api.objects[Kind.RAY_JOB, name])


def test_a_late_ray_job_of_an_earlier_attempt_is_not_taken_for_that_of_the_present_one() -> None:
    story = running()
    body = story.api.objects[Kind.RAY_JOB, "demo-r1-a1"]
    story.driver_fails(5, "StorageFailed")
    story.dies_before(Kind.RAY_JOB)
    with pytest.raises(Killed):
        story.pass_time(HOUR_S)
    assert story.status["attempt"]["number"] == 2
    metadata = {name: body["metadata"][name] for name in ("name", "labels", "ownerReferences")}
    story.api.create(Kind.RAY_JOB, {**body, "metadata": metadata})  # by an operator that was frozen in its creation
    story.restart()
    story.settle()
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]
    assert story.status["attempt"]["rayJobName"] == "demo-r1-a2"


def test_a_stale_look_learns_the_job_as_it_is() -> None:
    story = running()
    story.driver_fails(5, "StorageFailed")
    frozen = story.another_operator()
    story.pass_time(HOUR_S)
    frozen.reconcile()  # it wanted to act on the job as it was
    frozen.reconcile()
    assert story.status["attempt"]["number"] == 2
    assert not is_leaving(story.api.objects[Kind.RAY_JOB, "demo-r1-a2"])
