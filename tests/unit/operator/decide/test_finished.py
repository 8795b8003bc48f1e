"""Jobs at rest cost little, and are there whole when they are wanted again."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.cluster.fake_api import NAMESPACE
from support.cluster.finished import finished_story
from support.cluster.story import NAME, SETTINGS, Story, planned, running
from tokenization_operator.decide.finished import is_at_rest, seconds_until_due
from tokenization_operator.informer.cache import Cache
from tokenization_operator.informer.schedule import OVERDUE_PER_S, ROUNDS, due_in_round, initial_reconciles
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.types.times import time_text

ENDED = datetime(2026, 11, 22, 13, tzinfo=UTC)
KEY = (NAMESPACE, NAME)
RETENTION_S = SETTINGS.ray_job_retention_s


def kept(cache: Cache, kind: str, name: str) -> Any:
    """What the cache holds of an object: itself, or bytes."""
    return cache._kinds[kind][NAMESPACE, name].kept


def failed(**spec: Any) -> Story:
    story = running(backoffLimit=0, **spec)
    story.driver_fails(2, "SpecInvalid")
    assert story.where[0] == "Failed"
    return story


def test_what_a_finished_job_has_is_kept_packed() -> None:
    story = finished_story(ENDED)
    story.restart()
    for kind, name in ((Kind.JOB, NAME), (Kind.CHECKPOINT, f"{NAME}-r1"), (Kind.RAY_JOB, f"{NAME}-r1-a1")):
        assert isinstance(kept(story.cache, kind, name), bytes), kind
    assert story.cache.get(Kind.JOB, *KEY) == story.job
    [checkpoint] = story.cache.children(KEY, Kind.CHECKPOINT)
    assert checkpoint == story.api.of(Kind.CHECKPOINT)[0]


def test_what_was_there_when_a_job_ends_is_packed_then() -> None:
    story = running()
    assert not isinstance(kept(story.cache, Kind.CHECKPOINT, f"{NAME}-r1"), bytes)
    story.commit()
    assert isinstance(kept(story.cache, Kind.CHECKPOINT, f"{NAME}-r1"), bytes)
    assert story.reconciler._observer._parsed == {}, "nor is it kept as its user wants it"


def test_a_job_that_is_wanted_again_is_whole_again() -> None:
    story = finished_story(ENDED)
    story.edit(rerunToken="again")
    assert story.status["run"]["number"] == 2
    for kind in (Kind.JOB, Kind.CHECKPOINT):
        for item in story.api.of(kind):
            assert not isinstance(kept(story.cache, kind, item["metadata"]["name"]), bytes)


def test_what_is_of_no_version_yet_is_news_also_where_it_is_packed() -> None:
    story = finished_story(ENDED)
    old = copy.deepcopy(story.job)
    assert not story.cache.put(Kind.JOB, old)
    story.api.edit(Kind.JOB, NAME, {"metadata": {"labels": {"a": "b"}}})
    assert story.cache.put(Kind.JOB, story.job)
    assert not story.cache.put(Kind.JOB, old), "an older version is no news"


def test_what_goes_while_it_is_packed_is_gone() -> None:
    story = finished_story(ENDED)
    [ray_job] = story.api.of(Kind.RAY_JOB)
    story.cache.drop(Kind.RAY_JOB, ray_job)
    assert story.cache.children(KEY, Kind.RAY_JOB) == []
    story.cache.drop(Kind.JOB, story.job)
    assert story.cache.jobs() == []
    assert not story.cache.is_at_rest(KEY)


# What a job at rest still needs


def test_a_finished_job_runs_again_for_a_new_token() -> None:
    story = finished_story(ENDED)
    story.restart()
    story.edit(rerunToken="again")
    story.plan()
    story.run()
    assert story.where == ("Running", "Running")
    assert story.status["run"]["number"] == 2
    assert story.made(Kind.RAY_JOB) == [f"{NAME}-r1-a1", f"{NAME}-r2-a1"]


def test_a_failed_job_goes_on_when_it_is_corrected() -> None:
    story = failed()
    story.restart()
    story.edit(maxQuarantined=9)
    assert story.status["attempt"]["number"] == 2
    assert story.status["run"]["number"] == 1
    story.run(4)
    story.commit()
    assert story.where == ("Succeeded", "Committed")


def test_a_finished_job_goes_when_its_time_has_come_and_not_before() -> None:
    story = running(ttlSecondsAfterFinished=500)
    story.commit()
    story.restart()
    story.pass_time(499)
    assert story.names(Kind.JOB) == [NAME]
    story.pass_time(2)
    assert story.names(Kind.JOB) == []


def test_a_finished_job_that_is_suspended_stays_finished() -> None:
    story = finished_story(ENDED)
    story.edit(suspend=True)
    assert story.where == ("Succeeded", "Committed")
    assert story.status["observedGeneration"] == story.job["metadata"]["generation"]
    assert story.cache.is_at_rest(KEY)


def test_a_failed_job_whose_attempt_has_committed_late_ends_well_when_corrected() -> None:
    """Its checkpoint is read from what is packed."""
    story = failed()
    story.commit()
    story.restart()
    story.edit(maxQuarantined=9)
    assert story.where == ("Succeeded", "Committed")


# Its RayJob


def test_the_ray_job_of_a_committed_run_goes_an_hour_after_its_end() -> None:
    story = finished_story(ENDED)
    story.pass_time(RETENTION_S - 1)
    assert story.names(Kind.RAY_JOB) == [f"{NAME}-r1-a1"]
    story.pass_time(2)
    assert story.names(Kind.RAY_JOB) == []
    assert story.where == ("Succeeded", "Committed")
    assert story.names(Kind.CHECKPOINT) == [f"{NAME}-r1"]


def test_it_is_looked_at_when_that_is_due() -> None:
    story = finished_story(ENDED)
    story.pass_time(600)
    assert story.reconcile() == RETENTION_S - 600


def test_its_end_is_what_kuberay_says_and_not_when_the_run_was_committed() -> None:
    story = finished_story(ENDED)
    [name] = story.names(Kind.RAY_JOB)
    story.ray(endTime=time_text(ENDED + timedelta(seconds=600)))
    story.pass_time(RETENTION_S + 1)
    assert story.names(Kind.RAY_JOB) == [name]
    story.pass_time(600)
    assert story.names(Kind.RAY_JOB) == []


def test_one_of_which_kuberay_names_no_end_goes_an_hour_after_the_commit() -> None:
    story = finished_story(ENDED)
    story.ray(endTime=None)
    story.pass_time(RETENTION_S - 1)
    assert len(story.names(Kind.RAY_JOB)) == 1
    story.pass_time(2)
    assert story.names(Kind.RAY_JOB) == []


def test_the_ray_job_of_an_attempt_that_works_never_goes() -> None:
    story = running(activeDeadlineSeconds=10**6, stallTimeoutSeconds=10**6)
    story.ray(jobDeploymentStatus="Running", endTime=time_text(story.now - timedelta(hours=2)))
    story.pass_time(RETENTION_S + 1)
    assert story.where == ("Running", "Running")
    assert story.names(Kind.RAY_JOB) == [f"{NAME}-r1-a1"]


def test_the_ray_job_of_an_attempt_whose_last_word_is_awaited_never_goes() -> None:
    """Also where RayJobs are to go at once."""
    story = Story(settings=replace(SETTINGS, ray_job_retention_s=1.0))
    story.plan()
    story.run()
    story.ray(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime=time_text(story.now))
    story.pass_time(30)
    assert story.where == ("Running", "Finishing")
    assert story.names(Kind.RAY_JOB) == [f"{NAME}-r1-a1"]
    story.commit()
    assert story.where == ("Succeeded", "Committed")
    assert story.names(Kind.RAY_JOB) == []


# When it is looked at


def many(count: int, **spec: Any) -> Cache:
    """Of finished jobs, without their RayJobs."""
    story = finished_story(ENDED)
    cache = Cache()
    for number in range(count):
        item = copy.deepcopy(story.job)
        item["metadata"] |= {"name": f"done-{number}", "uid": f"uid-done-{number}"}
        item["spec"] |= spec
        cache.put(Kind.JOB, item)
    return cache


def test_a_new_operator_looks_at_once_at_what_is_not_at_rest() -> None:
    cache, story = many(100), planned()
    cache.put(Kind.JOB, story.job)
    mended = finished_story(ENDED)
    mended.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": "again"}})
    mended.job["metadata"]["name"] = "again"
    cache.put(Kind.JOB, mended.job)
    assert sorted(initial_reconciles(cache, RETENTION_S, ENDED)) == [((NAMESPACE, "again"), 0.0), (KEY, 0.0)]


def test_a_new_operator_looks_at_a_job_at_rest_when_something_is_due() -> None:
    story = finished_story(ENDED)
    assert list(initial_reconciles(story.cache, RETENTION_S, ENDED + timedelta(seconds=600))) == [
        (KEY, RETENTION_S - 600)
    ]
    assert list(initial_reconciles(many(1, ttlSecondsAfterFinished=500), RETENTION_S, ENDED)) == [
        ((NAMESPACE, "done-0"), 500.0)
    ]


def test_jobs_that_are_overdue_at_the_start_do_not_keep_others_waiting() -> None:
    late = ENDED + timedelta(days=1)
    waits = [delay_s for _, delay_s in initial_reconciles(many(100, ttlSecondsAfterFinished=500), RETENTION_S, late)]
    assert waits == [number / OVERDUE_PER_S for number in range(100)]


def test_each_job_at_rest_is_looked_at_once_in_so_many_rounds_and_the_others_each_time() -> None:
    cache, story = many(300), planned()
    cache.put(Kind.JOB, story.job)
    rounds = [due_in_round(cache, number) for number in range(ROUNDS)]
    assert all(KEY in each for each in rounds)
    assert sorted(key for each in rounds for key in each if key != KEY) == sorted(set(cache.jobs()) - {KEY})
    assert max(map(len, rounds)) < 30


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"status": {"phase": "Running"}}, False),
        ({"status": {"phase": None}}, False),
        ({"metadata": {"generation": 9}}, False),
        ({"metadata": {"deletionTimestamp": "2026-11-22T12:00:00Z"}}, False),
    ],
    ids=["finished", "runs", "wiped", "edited", "leaving"],
)
def test_a_job_is_at_rest_that_has_ended_and_was_seen_since(change: dict[str, Any], expected: bool) -> None:
    job = copy.deepcopy(finished_story(ENDED).job)
    for part, fields in change.items():
        job[part] |= fields
    assert is_at_rest(job) is expected


def test_nothing_is_due_of_a_job_without_a_ray_job_and_a_time_to_live() -> None:
    assert seconds_until_due(finished_story(ENDED).job, [], [], RETENTION_S, ENDED) is None


def test_metrics_read_phases_without_unpacking() -> None:
    cache, story = many(3), planned()
    cache.put(Kind.JOB, story.job)
    assert sorted(each["status"]["phase"] for each in cache.briefs()) == ["Starting", *["Succeeded"] * 3]


def test_a_plan_that_works_on_for_a_job_that_has_failed_is_due_at_once() -> None:
    """Its operator died between the status and the deletion."""
    story = Story()
    [plan_job] = story.api.of(Kind.PLAN_JOB)
    job = {**story.job, "status": {**story.status, "phase": "Failed"}}
    assert seconds_until_due(job, [plan_job], [], RETENTION_S, ENDED) == 0.0
    ended = {**plan_job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    assert seconds_until_due(job, [ended], [], RETENTION_S, ENDED) is None
