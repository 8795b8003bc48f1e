"""What Prometheus is told of jobs, on an API server in memory."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.cluster.fake_api import NAMESPACE
from support.cluster.story import NAME, Story, planned, running
from tokenization_operator.informer.cache import Cache
from tokenization_operator.job_metrics import MOST_JOBS
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.types.times import read_time, time_text

JOB = {"job_namespace": NAMESPACE, "job_name": NAME}


class Rested:
    """A queue that has nothing to do."""

    age_s = 0.0
    waiting = 0


def exported(cache: Cache) -> CollectorRegistry:
    metrics = Metrics()
    metrics.watch(Rested(), cache)
    return metrics.registry


def value_of(story: Story, name: str) -> float | None:
    return exported(story.cache).get_sample_value(name, JOB)


def job(name: str, phase: str, created: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-11-22T12:{created // 60:02}:{created % 60:02}Z",
        },
        "spec": {},
        "status": {"phase": phase} if phase else {},
    } | more


def cache_of(*jobs: dict[str, Any]) -> Cache:
    cache = Cache()
    for each in jobs:
        cache.put(Kind.JOB, each)
    return cache


def test_jobs_are_counted_by_phase_and_an_empty_phase_is_zero() -> None:
    registry = exported(cache_of(job("a", "Running"), job("b", "Running"), job("c", "Failed"), job("d", "")))
    found = {
        phase: registry.get_sample_value("tokenization_jobs", {"phase": phase})
        for phase in ("Running", "Failed", "Pending", "Queued")
    }
    assert found == {"Running": 2, "Failed": 1, "Pending": 1, "Queued": 0}


def test_a_job_at_work_tells_its_tokens_share_last_progress_and_attempts() -> None:
    story = running()
    story.now += timedelta(minutes=5)
    story.progress(2)
    assert value_of(story, "tokenization_job_tokens") == 2000
    assert value_of(story, "tokenization_job_progress_ratio") == 0.5
    assert value_of(story, "tokenization_job_last_progress_timestamp_seconds") == story.now.timestamp()
    assert value_of(story, "tokenization_job_attempts") == 1
    assert value_of(story, "tokenization_job_failures") == 0
    where = JOB | {"phase": "Running", "reason": "Running"}
    assert exported(story.cache).get_sample_value("tokenization_job_phase", where) == 1


@pytest.mark.parametrize("skew_s", [-3600, 3600], ids=["behind", "ahead"])
def test_the_last_progress_is_exported_by_the_operators_clock(skew_s: int) -> None:
    story = running()
    seen = story.now + timedelta(minutes=5)
    story.now = seen
    there = time_text(seen + timedelta(seconds=skew_s))
    story.report(progress={"rangesCompleted": 2, "lastRangeTime": there, "lastCheckpointTime": there})
    story.pass_time(60)
    assert value_of(story, "tokenization_job_last_progress_timestamp_seconds") == seen.timestamp()


def test_a_driver_that_has_just_begun_is_not_late_because_of_the_attempt_before() -> None:
    story = running()
    story.driver_fails(5, "StorageFailed")
    story.pass_time(3600)
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    began = read_time(story.status["attempt"]["runningTime"])
    assert began is not None
    assert value_of(story, "tokenization_job_last_progress_timestamp_seconds") == began.timestamp()
    assert value_of(story, "tokenization_job_attempts") == 2
    assert value_of(story, "tokenization_job_failures") == 1


@pytest.mark.parametrize(
    ("limit", "documents", "quarantined", "share"),
    [
        (10, 90, 6, 0.6),
        ("1k", 0, 100, 0.1),
        ("1%", 994, 6, 0.6),
        (0, 100, 0, 0.0),
        (0, 100, 1, float("inf")),
        ("0.1%", 0, 0, 0.0),
        (None, 999, 1, 1.0),
    ],
    ids=str,
)
def test_quarantined_documents_are_exported_as_a_share_of_the_limit(
    limit: int | str | None, documents: int, quarantined: int, share: float
) -> None:
    progress = {"documents": documents, "quarantined": quarantined}
    spec = {} if limit is None else {"maxQuarantined": limit}
    found = job(NAME, "Running", status={"phase": "Running", "progress": progress}, spec=spec)
    registry = exported(cache_of(found))
    assert registry.get_sample_value("tokenization_job_quarantined_documents", JOB) == quarantined
    assert registry.get_sample_value("tokenization_job_quarantined_limit_ratio", JOB) == pytest.approx(share)


def test_a_limit_that_is_not_understood_costs_no_other_metric() -> None:
    status = {"phase": "Running", "progress": {"documents": 1, "quarantined": 1}}
    registry = exported(cache_of(job(NAME, "Running", status=status, spec={"maxQuarantined": "some"})))
    assert registry.get_sample_value("tokenization_job_quarantined_limit_ratio", JOB) is None
    assert registry.get_sample_value("tokenization_job_quarantined_documents", JOB) == 1


def test_of_too_many_jobs_active_ones_are_exported_and_the_rest_is_counted() -> None:
    finished = [job(f"done-{number}", "Succeeded", created=number) for number in range(MOST_JOBS)]
    cache = cache_of(*finished, job("old-and-failed", "Failed"), job("old-and-at-work", "Starting"))
    registry = exported(cache)
    assert registry.get_sample_value("tokenization_jobs_left_out") == 2
    [family] = [each for each in registry.collect() if each.name == "tokenization_job_phase"]
    told = {sample.labels["job_name"] for sample in family.samples}
    assert len(told) == MOST_JOBS
    assert {"old-and-at-work", "old-and-failed", f"done-{MOST_JOBS - 1}"} <= told
    assert not {"done-0", "done-1"} & told, "the oldest of those that nothing happens to"


def histogram(story: Story, name: str, **labels: str) -> tuple[float | None, float | None]:
    """How many were observed, and the sum of their seconds."""
    registry = story.metrics.registry
    return registry.get_sample_value(f"{name}_count", labels), registry.get_sample_value(f"{name}_sum", labels)


def test_the_durations_of_plan_start_and_run_are_exported_once_each() -> None:
    story = Story()
    [plan_job] = story.api.of(Kind.PLAN_JOB)
    plan_job["metadata"]["creationTimestamp"] = story.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    story.cache.put(Kind.PLAN_JOB, plan_job)
    story.now += timedelta(seconds=20)
    story.plan()
    assert histogram(story, "tokenization_plan_duration_seconds") == (1, 20)
    story.ray(jobDeploymentStatus="Suspended")
    story.pass_time(3600)
    story.ray(jobDeploymentStatus="Initializing")
    story.now += timedelta(seconds=70)
    story.run()
    assert histogram(story, "tokenization_start_duration_seconds") == (1, 70)
    story.now += timedelta(seconds=100)
    story.progress(4)
    story.commit()
    assert histogram(story, "tokenization_run_duration_seconds", outcome="Succeeded") == (1, 170)
    assert histogram(story, "tokenization_run_duration_seconds", outcome="Failed") == (0, 0)
    story.pass_time(1000)
    assert histogram(story, "tokenization_run_duration_seconds", outcome="Succeeded") == (1, 170)


def test_failed_and_already_complete_runs_have_their_own_outcomes() -> None:
    failed = Story()
    failed.plan_fails(2, "SourceInvalid")
    assert histogram(failed, "tokenization_run_duration_seconds", outcome="Failed") == (1, 0)
    complete = Story()
    complete.report(plan={"planId": "p", "dataKey": "d", "files": 3, "bytes": 9, "ranges": 4, "alreadyComplete": True})
    complete.commit()
    assert complete.where == ("Succeeded", "AlreadyComplete")
    assert histogram(complete, "tokenization_run_duration_seconds", outcome="AlreadyComplete") == (1, 0)


def test_an_operator_that_cannot_begin_has_looked_at_nothing_since_it_tried() -> None:
    moments = iter([100.0, 400.0])
    metrics = Metrics(clock=lambda: next(moments))
    assert metrics.registry.get_sample_value("tokenization_last_reconcile_age_seconds") == 300


def test_metrics_of_the_process_are_exported() -> None:
    text = generate_latest(exported(planned().cache)).decode()
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "python_info"):
        assert f"\n{name}" in text


def test_jobs_may_come_and_go_while_prometheus_asks() -> None:
    cache = cache_of(*(job(f"job-{number}", "Running") for number in range(2000)))
    registry = exported(cache)
    is_over = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            cache.put(Kind.JOB, job(f"other-{number}", "Running"))
            cache.drop(Kind.JOB, job(f"other-{number}", "Running"))

    coming = threading.Thread(target=come_and_go)
    coming.start()
    rarely = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            assert (registry.get_sample_value("tokenization_jobs", {"phase": "Running"}) or 0) >= 2000
    finally:
        sys.setswitchinterval(rarely)
        is_over.set()
        coming.join()


def test_an_operator_that_waits_for_the_lease_tells_of_no_job() -> None:
    metrics = Metrics()
    leads = False
    metrics.watch(Rested(), cache_of(job("one", "Running")), lambda: leads)
    assert metrics.registry.get_sample_value("tokenization_jobs", {"phase": "Running"}) is None
    assert metrics.registry.get_sample_value("tokenization_leader") == 0
    leads = True
    assert metrics.registry.get_sample_value("tokenization_jobs", {"phase": "Running"}) == 1
    assert metrics.registry.get_sample_value("tokenization_leader") == 1
