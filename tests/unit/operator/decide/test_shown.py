"""What people see of a job: times, rates, counts in words, the place of its dataset, and what an edit will do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.cluster.story import Story, planned, running
from tokenization_operator.decide.status.printer_columns import duration_words, part_of, plan_words, ready_words
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.status import PlanStatus, WorkersStatus
from tokenization_worker.api.types.times import time_text

PLAN = {"files": 21, "ranges": 4, "estimatedTokens": 10_100_000_000, "estimatedSeconds": 490}


def report_rate(
    story: Story, *, ahead_s: float = 0.0, rate: int = 12_300_000, percent: int = 42, done: int = 2, last: float = 0.0
) -> None:
    """The driver reports now; its clock is `ahead_s` ahead, and its last range was done `last` seconds ago."""
    there = story.now + timedelta(seconds=ahead_s)
    story.report(
        progress={
            "attempt": story.status["attempt"]["number"],
            "rangesTotal": 4,
            "rangesCompleted": done,
            "percent": percent,
            "tokens": 4_200_000_000,
            "tokensPerSecond": rate,
            "etaSeconds": 480,
            "lastRangeTime": time_text(there - timedelta(seconds=last)),
            "lastCheckpointTime": time_text(there),
        }
    )


# Times


def test_a_run_has_a_start_and_an_end_and_says_how_long_it_took() -> None:
    story = running()
    assert (story.status["startTime"], story.status.get("completionTime")) == ("2026-11-22T12:00:00Z", None)
    story.pass_time(1025)
    story.commit()
    assert story.status["completionTime"] == "2026-11-22T12:17:05Z"
    assert story.status["display"]["duration"] == "17m5s"
    assert story.status["message"] == "10 documents, 4,000 tokens in 17m5s: gs://tokens/demo/index.json"
    story.pass_time(1000)
    assert story.status["completionTime"] == "2026-11-22T12:17:05Z", "it stays"


def test_the_start_of_a_run_stays_when_it_waits_and_the_end_goes_when_it_goes_on() -> None:
    story = running()
    story.edit(suspend=True)
    story.pass_time(500)
    story.edit(suspend=False)
    assert story.status["startTime"] == "2026-11-22T12:00:00Z"
    story.run()
    story.driver_fails(4, "QuarantineExceeded")
    assert story.status["completionTime"] == "2026-11-22T12:08:20Z"
    story.edit(maxQuarantined="50%")
    assert "completionTime" not in story.status
    assert "duration" not in story.status.get("display", {})
    assert story.status["startTime"] == "2026-11-22T12:00:00Z"


def test_a_run_starts_no_earlier_than_its_job_though_the_operator_is_a_second_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its duration would be above its age."""
    settle = Story.settle
    monkeypatch.setattr(Story, "settle", lambda story: None)
    story = Story()
    monkeypatch.setattr(Story, "settle", settle)
    story.now -= timedelta(seconds=1)
    story.settle()
    assert story.status["startTime"] == story.job["metadata"]["creationTimestamp"] == "2026-11-22T12:00:00Z"


def test_a_new_run_has_a_start_of_its_own() -> None:
    story = running()
    story.commit()
    story.pass_time(60)
    story.edit(rerunToken="2")
    assert (story.status["startTime"], story.status.get("completionTime")) == ("2026-11-22T12:01:00Z", None)


def test_a_job_that_had_ended_before_there_were_these_times_is_left_as_it_is() -> None:
    """An upgrade writes nothing to the jobs that are done."""
    story = running()
    story.commit()
    old = dict.fromkeys(("startTime", "completionTime", "cost"))
    story.api.edit("TokenizationJob", "demo", old, is_status=True)
    before = story.status
    story.pass_time(3600)
    assert story.status == before
    story.edit(ttlSecondsAfterFinished=10**6)
    assert story.status["completionTime"] == "2026-11-22T12:00:00Z", "that of its condition"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (1025, "17m5s"), (7140, "1h59m"), (86_400, "1d"), (100_000, "1d3h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


# Rates


def test_a_driver_that_works_has_a_rate_and_an_eta() -> None:
    story = planned()
    story.run()
    report_rate(story)
    shown = story.status["display"]
    assert (shown["rate"], shown["eta"]) == ("12.3M/s", "8m")


@pytest.mark.parametrize("reports", [{"rate": 0}, {"percent": 100}], ids=["zero", "at its end"])
def test_a_driver_without_progress_has_no_rate_and_no_eta(reports: dict[str, int]) -> None:
    story = running()
    report_rate(story, **reports)
    assert not {"rate", "eta"} & story.status["display"].keys()


HOUR_S = 3600.0
SKEWED = pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S], ids=["behind", "right", "ahead"])


@SKEWED
def test_a_driver_with_long_ranges_keeps_its_rate_whatever_the_clock_of_its_node_says(ahead_s: float) -> None:
    story = running()
    for last in (0.0, 100.0, 200.0, 300.0):
        report_rate(story, ahead_s=ahead_s, last=last)
        assert story.status["display"]["rate"] == "12.3M/s"
        story.pass_time(100)
        assert story.status["display"]["rate"] == "12.3M/s"


@SKEWED
def test_a_driver_that_falls_silent_loses_its_rate(ahead_s: float) -> None:
    story = running()
    report_rate(story, ahead_s=ahead_s)
    story.pass_time(200)
    assert story.where == ("Running", "Running")
    assert not {"rate", "eta"} & story.status["display"].keys()


@pytest.mark.parametrize("end", ["suspended", "retrying", "failed", "succeeded"])
def test_a_job_that_does_not_run_has_no_rate_and_no_eta(end: str) -> None:
    story = running()
    report_rate(story)
    if end == "suspended":
        story.edit(suspend=True)
    elif end == "succeeded":
        story.commit()
    else:
        story.driver_fails(4 if end == "failed" else 5, "StorageFailed")
    assert not {"rate", "eta"} & story.status["display"].keys()
    assert not {"tokensPerSecond", "etaSeconds"} & story.status["progress"].keys()
    assert story.status["progress"]["tokens"] == 4_200_000_000, "finished work is kept"


# The place of the dataset


def test_the_output_is_named_from_the_start_with_the_token_filled_in() -> None:
    story = Story({"rerunToken": "monday", "output": {"uri": "gs://tokens/{rerunToken}/"}})
    assert story.where == ("Planning", "Planning")
    assert story.status["output"] == {"uri": "gs://tokens/monday"}


def test_a_local_output_is_named_as_its_worker_names_it() -> None:
    story = Story({"output": {"uri": "file:///data//tokens/"}})
    assert story.status["output"] == {"uri": "/data/tokens"}


def test_a_new_run_names_its_own_output() -> None:
    story = running(rerunToken="1", output={"uri": "gs://tokens/{rerunToken}"})
    story.commit(indexUri="gs://tokens/1/index.json")
    story.edit(rerunToken="2")
    assert story.status["output"] == {"uri": "gs://tokens/2"}


def test_a_finished_job_describes_its_dataset_for_training() -> None:
    story = running()
    story.commit(digest="d1", fingerprint="f1")
    assert story.status["output"] == {
        "uri": "gs://tokens/demo",
        "indexUri": "gs://tokens/demo/index.json",
        "indexDigest": "0" * 64,
        "digest": "d1",
        "fingerprint": "f1",
        "tokens": 4000,
    }


def test_a_worker_that_reports_no_digest_is_understood() -> None:
    story = running()
    story.commit()
    assert story.where == ("Succeeded", "Committed")
    assert not {"digest", "fingerprint"} & story.status["output"].keys()


# Words


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({"rangesTotal": 4, "rangesCompleted": 3}, "3 of 4 ranges"),
        ({"stage": "Tokenize", "rangesTotal": 4, "rangesCompleted": 3, "windowsScattered": 1}, "3 of 4 ranges"),
        ({"stage": "Scatter", "windowsTotal": 40, "windowsScattered": 12}, "12 of 40 windows scattered"),
        ({"stage": "Build", "shardsTotal": 7, "shardsBuilt": 3}, "3 of 7 shards built"),
    ],
    ids=["older worker", "tokenize", "scatter", "build"],
)
def test_a_running_job_says_how_far_its_stage_is(progress: dict[str, Any], words: str) -> None:
    story = running()
    story.report(progress={"attempt": 1, **progress})
    assert story.status["message"] == words


def test_a_queue_that_kueue_gives_a_ray_job_itself_is_no_change_of_the_job() -> None:
    """As for a LocalQueue that is named `default`."""
    story = running()
    [name] = story.names(Kind.RAY_JOB)
    story.api.edit(Kind.RAY_JOB, name, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "default"}}})
    story.settle()
    assert "pendingChanges" not in story.status["attempt"]


def test_a_shuffle_that_scatters_shows_the_time_that_is_left_and_no_rate() -> None:
    story = running()
    windows = {"stage": "Scatter", "windowsTotal": 9, "windowsScattered": 3, "percent": 82, "etaSeconds": 600}
    story.report(progress={"attempt": 1, **windows})
    shown = story.status["display"]
    assert (shown["progress"], shown.get("rate"), shown["eta"]) == ("82% 1.0k tok", None, "10m")


def test_a_shuffle_that_scatters_goes_on() -> None:
    story = running(stallTimeoutSeconds=600)
    for done in range(1, 6):
        story.pass_time(500)
        story.report(progress={"attempt": 1, "stage": "Scatter", "windowsTotal": 9, "windowsScattered": done})
    assert story.where == ("Running", "Running")


def test_one_is_singular() -> None:
    assert part_of(0, 1, "range") == "0 of 1 range"
    assert part_of(3, 1000, "range") == "3 of 1,000 ranges"
    assert ready_words(WorkersStatus(desired=1, ready=1)) == "1/1 worker is ready"
    assert ready_words(WorkersStatus(desired=64, ready=58)) == "58/64 workers are ready"
    assert plan_words(PlanStatus(files=1, estimated_tokens=1, estimated_seconds=1, workers=1)) == (
        "1 file, about 1 token, about 1 s on 1 worker"
    )
    rows = PlanStatus(files=3, estimated_tokens=10**10, estimated_rows=4_880_000, estimated_utilization="98.6%")
    assert plan_words(rows) == "3 files, about 10.0B tokens, about 4.9M rows (98.6% text)"


def test_one_worker_and_one_range_are_singular_in_the_status() -> None:
    story = planned()
    story.ray(jobDeploymentStatus="Initializing")
    assert story.status["message"].startswith("0/1 worker is ready; waits until")
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    story.report(progress={"attempt": 1, "rangesTotal": 1, "rangesCompleted": 0, "percent": 0})
    assert story.status["message"] == "0 of 1 range"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 s"), (89, "89 s"), (490, "8 min"), (5000, "83 min"), (9000, "2.5 h"), (400_000, "111 h")],
)
def test_an_expected_time_is_rounded(seconds: int, words: str) -> None:
    assert plan_words(PlanStatus(files=2, estimated_seconds=0, workers=1)) == "2 files"
    assert plan_words(PlanStatus(files=2, estimated_seconds=seconds)) == f"2 files, about {words}"


@pytest.mark.parametrize(
    ("limit", "where"),
    [
        ({"activeDeadlineSeconds": 10}, ("Failed", "DeadlineExceeded")),
        ({"stallTimeoutSeconds": 10}, ("Retrying", "Stalled")),
        ({"startupDeadlineSeconds": 10}, ("Running", "Running")),
        ({"backoffLimit": 0}, ("Running", "Running")),
        ({"infraRetryLimit": 0}, ("Running", "Running")),
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def test_a_limit_that_is_lowered_counts_at_once(limit: dict[str, int], where: tuple[str, str]) -> None:
    story = running()
    story.pass_time(900)
    story.edit(**limit)
    assert story.where == where
    assert story.made("RayJob") == ["demo-r1-a1"]


def test_a_retry_limit_that_is_lowered_judges_the_next_failure() -> None:
    story = running()
    story.edit(infraRetryLimit=0)
    story.driver_fails(5, "StorageFailed")
    assert story.where == ("Failed", "StorageFailed")


def test_a_suspended_plan_says_what_a_run_would_take() -> None:
    story = Story({"suspend": True, "workers": {"replicas": 16}})
    story.plan(**PLAN)
    assert story.status["message"] == (
        "spec.suspend is true; planned: 21 files, about 10.1B tokens, about 8 min on 16 workers; "
        "set it to false to begin"
    )
    story.edit(workers={"replicas": 32})
    assert "on 16 workers" in story.status["message"], "that is what was estimated"


def test_a_job_that_is_suspended_while_it_runs_says_how_far_it_is() -> None:
    story = running()
    story.edit(suspend=True)
    assert (
        story.status["message"] == "spec.suspend is true; 1 of 4 ranges is done and kept; set it to false to continue"
    )
    story.edit(suspend=False)
    story.run(3)
    story.edit(suspend=True)
    assert "; 3 of 4 ranges are done and kept; " in story.status["message"]


# A TPU host that a worker has to itself

TPU = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8}
IDLE = (
    "RayJob demo-r1-a1. Each worker reserves a whole TPU host, and uses 4 CPUs and {memory} of it: to use more, set "
    "workers.resources.requests"
)


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ({"tpu": TPU}, IDLE.format(memory="8Gi")),
        ({"tpu": TPU, "resources": {"requests": {"memory": "64Gi"}}}, IDLE.format(memory="64Gi")),
        ({"tpu": TPU, "resources": {"limits": {"cpu": "100"}}}, IDLE.format(memory="8Gi")),
        ({"tpu": TPU, "resources": {"requests": {"cpu": "100"}}}, "RayJob demo-r1-a1"),
        ({"tpu": TPU | {"share": "HostCpu"}}, "RayJob demo-r1-a1"),
        ({}, "RayJob demo-r1-a1"),
    ],
    ids=["default", "memory alone", "a limit alone", "asked for", "shared host", "no TPU"],
)
def test_what_a_worker_leaves_idle_of_its_tpu_host_is_said_once_an_attempt(
    workers: dict[str, object], words: str
) -> None:
    story = planned(workers=workers)
    story.pass_time(60)
    assert [message for reason, message in story.api.events if reason == "ClusterRequested"] == [words]


# Edits of a running job


def test_an_edit_of_a_running_job_says_when_it_counts() -> None:
    story = running(workers={"replicas": 2})
    story.edit(workers={"replicas": 3})
    words = "workers 2 → 3: from the next attempt"
    assert story.where == ("Running", "Running")
    assert story.status["message"] == f"1 of 4 ranges; {words}"
    told = [message for reason, message in story.api.events if reason == "ChangedForNextAttempt"]
    assert told == [f"{words}; to begin it now, set spec.suspend to true, then to false"]
    story.progress(2)
    story.restart()
    story.settle()
    assert len([1 for reason, _ in story.api.events if reason == "ChangedForNextAttempt"]) == 1, "told once"


def test_an_edit_that_is_taken_back_is_forgotten() -> None:
    story = running(workers={"replicas": 2})
    story.edit(workers={"replicas": 3})
    story.edit(workers={"replicas": 2})
    assert story.status["message"] == "1 of 4 ranges"
    assert "pendingChanges" not in story.status["attempt"]


def test_the_next_attempt_has_what_was_changed() -> None:
    story = running(workers={"replicas": 2})
    story.edit(workers={"replicas": 3})
    story.driver_fails(5, "StorageFailed")
    story.pass_time(60)
    story.run()
    assert story.status["attempt"]["replicas"] == 3
    assert story.status["message"] == "1 of 4 ranges"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"image": "worker:2"}, "image worker:1 → worker:2: from the next attempt"),
        ({"maxQuarantined": "5%"}, "maxQuarantined 0.1% → 5%: from the next attempt"),
        (
            {"workers": {"replicas": 2}, "maxCorruptFiles": 1},
            "workers 1 → 2, maxCorruptFiles 0 → 1: from the next attempt",
        ),
        ({"head": {"resources": {"requests": {"cpu": "2"}}}}, "head.resources: from the next attempt"),
        (
            {"env": [{"name": "A", "value": "b"}], "workers": {"nodeSelector": {"a": "b"}}, "backoffLimit": 9},
            "env, workers.nodeSelector: from the next attempt",
        ),
        (
            {"image": "worker:2", "pods": {"labels": {"example.com/team": "a"}}},
            "image worker:1 → worker:2, pods.labels: from the next attempt",
        ),
    ],
    ids=["image", "limit", "two", "block", "fields", "field and value"],
)
def test_an_edit_is_reported_by_its_fields(edit: dict[str, object], words: str) -> None:
    story = running()
    story.edit(**edit)
    assert story.status["attempt"]["pendingChanges"] == words


def test_an_edit_of_many_fields_names_the_first_ones() -> None:
    story = running()
    placement = {"nodeSelector": {"a": "b"}, "priorityClassName": "p", "resources": {"requests": {"cpu": "2"}}}
    tolerations = [{"key": "a", "operator": "Exists"}]
    block = placement | {"tolerations": tolerations}
    pods = {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    story.edit(workers=block, head=block, pods=pods, env=[{"name": "A", "value": "b"}])
    words = story.status["attempt"]["pendingChanges"]
    assert words.startswith("env, head.nodeSelector, head.priorityClassName, ")
    assert words.endswith(", workers.nodeSelector, 3 more: from the next attempt")


@pytest.mark.parametrize("fields", [None, "no JSON", "[]"], ids=["an older operator", "no JSON", "a list"])
def test_an_edit_of_a_job_whose_fields_are_not_known_is_reported_without_them(fields: str | None) -> None:
    story = running()
    story.api.edit("RayJob", "demo-r1-a1", {"metadata": {"annotations": {"tokenization.dev/fields": fields}}})
    story.edit(env=[{"name": "A", "value": "b"}])
    assert story.status["attempt"]["pendingChanges"] == "the job has changed: from the next attempt"


QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {QUEUE: "team-a"}, "queue (none) → team-a"),
        ({QUEUE: "team-a"}, {QUEUE: "team-b"}, "queue team-a → team-b"),
        ({QUEUE: "team-a"}, {QUEUE: None}, "queue team-a → (none)"),
        ({QUEUE: "team-a"}, {PRIORITY: "high"}, "queue priority (none) → high"),
    ],
    ids=["added", "changed", "removed", "priority"],
)
def test_a_label_of_kueue_that_is_changed_says_when_it_counts(
    before: dict[str, str], after: dict[str, str | None], words: str
) -> None:
    story = Story(labels=before)
    story.plan()
    story.run()
    story.api.edit("TokenizationJob", "demo", {"metadata": {"labels": after}})
    story.settle()
    assert story.status["message"] == f"1 of 4 ranges; {words}: from the next attempt"
    assert ("QuotaReserved" in story.conditions) == (QUEUE in before)
    told = [message for reason, message in story.api.events if reason == "ChangedForNextAttempt"]
    assert told == [f"{words}: from the next attempt; to begin it now, set spec.suspend to true, then to false"]
    story.edit(suspend=True)
    story.edit(suspend=False)
    story.run()
    assert story.status["message"] == "1 of 4 ranges"
    assert ("QuotaReserved" in story.conditions) == (after.get(QUEUE, before.get(QUEUE)) is not None)


def test_a_job_that_waits_in_a_queue_names_that_queue_and_not_a_later_one() -> None:
    story = Story(labels={QUEUE: "team-a"})
    story.plan()
    story.api.edit("RayJob", "demo-r1-a1", {"spec": {"suspend": True}})
    story.settle()
    story.api.edit("TokenizationJob", "demo", {"metadata": {"labels": {QUEUE: "team-b"}}})
    story.settle()
    assert (story.where, story.status["message"]) == (("Queued", "Queued"), "waits in LocalQueue 'team-a'")
    assert story.status["attempt"]["pendingChanges"] == "queue team-a → team-b: from the next attempt"


@pytest.mark.parametrize("edit", [{"ttlSecondsAfterFinished": 60}, {"suspend": False}], ids=["ttl", "suspend"])
def test_an_edit_that_matters_for_no_attempt_is_not_reported(edit: dict[str, object]) -> None:
    story = running()
    story.edit(**edit)
    assert story.status["message"] == "1 of 4 ranges"
