"""Deadlines are acted on at their moment, and by one clock: that of the API server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from support.cluster.story import NAME, Story, planned, running
from tokenization_operator.kube.accounts import Accounts
from tokenization_operator.kube.server_clock import ServerClock
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.observe.observation import KubeRay
from tokenization_worker.api.types.times import time_text

HOUR_S = 3600


@pytest.mark.parametrize("ttl", [0, 7, 61, HOUR_S])
@pytest.mark.parametrize("ends", ["commit", "fail"])
def test_a_finished_job_goes_at_its_time(ttl: int, ends: str) -> None:
    story = running(ttlSecondsAfterFinished=ttl)
    if not ttl:
        story.settle = lambda most=20: [story.reconcile() for _ in range(4)] and None  # type: ignore[method-assign]
    if ends == "commit":
        story.commit()
    else:
        story.driver_fails(4, "QuarantineExceeded")
    if ttl:
        story.pass_time(ttl - 5)
        assert (story.reconcile() or 0) <= 5
        story.pass_time(5)
    assert (Kind.JOB, "demo") not in story.api.objects


def test_a_run_looks_again_at_its_deadline_whatever_it_does() -> None:
    story = Story({"activeDeadlineSeconds": HOUR_S, "startupDeadlineSeconds": 2 * HOUR_S})
    story.now += timedelta(seconds=HOUR_S - 4)
    assert story.reconcile() == 4
    story.plan()
    assert story.reconcile() == 4
    story.ray(jobDeploymentStatus="Initializing")
    assert story.reconcile() == 4
    story.run(1)
    assert story.reconcile() == 4
    story.pass_time(4)
    assert story.where == ("Failed", "DeadlineExceeded")


def test_a_job_whose_cluster_lacks_kuberay_keeps_its_deadline() -> None:
    story = planned(activeDeadlineSeconds=HOUR_S)
    story.api.kuberay = KubeRay.MISSING
    story.api.remove(Kind.RAY_JOB, "demo-r1-a1")
    story.now += timedelta(seconds=HOUR_S - 4)
    assert story.reconcile() == 4


def test_an_attempt_looks_again_at_its_startup_deadline_and_when_it_would_be_stalled() -> None:
    story = planned(startupDeadlineSeconds=1000, stallTimeoutSeconds=600)
    story.ray(jobDeploymentStatus="Initializing")
    story.now += timedelta(seconds=997)
    assert story.reconcile() == 3
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
    story.now += timedelta(seconds=600)
    assert (story.reconcile() or 0) <= 30
    story.pass_time(60)
    assert story.where == ("Retrying", "Stalled")


def account_comes_back(**spec: object) -> Story:
    """A run whose ServiceAccount was gone for a minute, and is there again."""
    story = running(**spec)
    story.api.accounts.clear()
    story.pass_time(60)
    assert story.where == ("Running", "NamespaceNotPrepared")
    story.api.accounts.add("tokenization-worker")
    story.settle()
    assert story.where == ("Running", "Running")
    return story


def test_a_driver_whose_token_is_not_renewed_yet_is_not_stalled() -> None:
    story = account_comes_back(stallTimeoutSeconds=600)
    for _ in range(7):
        story.pass_time(500)
        assert story.where == ("Running", "Running")
    story.restart()
    story.pass_time(99)
    assert story.where == ("Running", "Running")
    assert story.reconcile() == 1
    story.pass_time(1)
    assert story.where == ("Retrying", "Stalled")


def test_a_driver_that_has_reported_since_its_account_is_back_has_its_ordinary_time() -> None:
    story = account_comes_back(stallTimeoutSeconds=600)
    story.pass_time(100)
    story.progress(2)
    story.pass_time(660)
    assert story.where == ("Retrying", "Stalled")


def test_a_stall_timeout_longer_than_the_life_of_a_token_stays_as_it_is() -> None:
    story = account_comes_back(stallTimeoutSeconds=2 * HOUR_S)
    story.pass_time(2 * HOUR_S - 1)
    assert story.where == ("Running", "Running")
    story.pass_time(61)
    assert story.where == ("Retrying", "Stalled")


@pytest.mark.parametrize("skew_s", [-2 * HOUR_S, 2 * HOUR_S], ids=["behind", "ahead"])
def test_the_clock_of_a_workers_node_neither_stalls_a_run_nor_keeps_it(skew_s: int) -> None:
    story = planned(stallTimeoutSeconds=600)
    story.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")

    def tell(done: int) -> None:
        there = time_text(story.now + timedelta(seconds=skew_s))
        counts = {"attempt": 1, "rangesTotal": 100, "rangesCompleted": done}
        story.report(progress=counts | {"lastRangeTime": there, "lastCheckpointTime": there})

    for done in range(1, 10):
        tell(done)
        story.pass_time(500)
        assert story.where == ("Running", "Running")
    story.report(progress={"lastCheckpointTime": time_text(story.now + timedelta(seconds=skew_s))})
    story.pass_time(200)
    assert story.where == ("Retrying", "Stalled")


@pytest.mark.parametrize("skew_s", [-2 * HOUR_S, 2 * HOUR_S], ids=["behind", "ahead"])
def test_the_clock_of_kuberays_node_does_not_end_the_wait_for_a_commit(skew_s: int) -> None:
    story = running()
    ended = time_text(story.now + timedelta(seconds=skew_s))
    story.ray(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime=ended)
    story.pass_time(59)
    assert story.where == ("Running", "Finishing")
    story.pass_time(1)
    assert story.where == ("Retrying", "CommitMissing")


@pytest.mark.parametrize("skew_s", [-2 * HOUR_S, 2 * HOUR_S], ids=["behind", "ahead"])
def test_the_clock_of_the_job_controller_does_not_end_the_wait_for_a_plan(skew_s: int) -> None:
    story = Story()
    moved = time_text(story.now + timedelta(seconds=skew_s))
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": moved}
    story.api.edit(Kind.PLAN_JOB, "demo-r1-p1", {"conditions": [complete]}, is_status=True)
    story.settle()
    story.pass_time(59)
    assert story.where == ("Planning", "Planning")
    story.pass_time(1)
    assert story.where == ("Retrying", "PlanNotReported")


class Server:
    """An API server whose clock is `ahead_s` ahead of this machine's, and answers after `takes_s`."""

    def __init__(self, ahead_s: float, takes_s: float = 0.01) -> None:
        self.ahead_s, self.takes_s = ahead_s, takes_s
        self.mono = 1000.0
        self.began = datetime(2026, 11, 22, 12, tzinfo=UTC)
        self.clock = ServerClock(lambda: self.mono, lambda: self.began + timedelta(seconds=self.mono - 1000))

    @property
    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.mono - 1000 + self.ahead_s)

    @property
    def error_s(self) -> float:
        return abs((self.clock.now() - self.now).total_seconds())

    def ask(self, status: int = 200) -> None:
        async def answer() -> Any:
            self.mono += self.takes_s / 2
            date = self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")
            self.mono += self.takes_s / 2
            if status == 200:
                return SimpleNamespace(getheaders=lambda: {"Date": date})
            error = ApiException(status=status)
            error.headers = {"Date": date}
            raise error

        try:
            asyncio.run(self.clock.time(answer()))
        except ApiException:
            assert status != 200


@pytest.mark.parametrize("ahead_s", [-7200.3, 0.4, 7200.7])
@pytest.mark.parametrize("status", [200, 404])
def test_an_operator_whose_clock_is_wrong_has_the_time_of_the_api_server(ahead_s: float, status: int) -> None:
    server = Server(ahead_s)
    server.ask(status)
    assert server.error_s <= 1
    server.mono += 10 * HOUR_S
    assert server.error_s <= 1, "and counts on by itself"
    for _ in range(50):
        server.mono += 1.37
        server.ask(status)
    assert server.error_s < 0.1, "many answers bound it closely"


def test_a_clock_that_is_set_is_followed_at_the_next_answer() -> None:
    server = Server(0.0)
    server.ask()
    for ahead_s in (-HOUR_S, HOUR_S, 5.0):
        server.ahead_s = ahead_s
        server.ask()
        assert server.error_s <= 1


def test_an_answer_that_takes_long_spoils_nothing() -> None:
    server = Server(7200.0)
    for _ in range(50):
        server.mono += 1.37
        server.ask()
    server.takes_s = 25.0
    server.ask()
    assert server.error_s < 0.1


def test_an_answer_without_a_date_changes_nothing() -> None:
    server = Server(7200.0)
    server.ask()
    server.clock.update(None, server.mono)
    server.clock.update("yesterday", server.mono)
    assert server.error_s <= 1


class Namespaces:
    """ServiceAccounts as the API server has them, and how often it was asked."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.asked = 0
        self.broken: set[str] = set()
        self.seconds = 0.0
        self.accounts = Accounts(self._read, lambda: self.seconds)

    async def _read(self, namespace: str, name: str) -> bool:
        self.asked += 1
        if namespace in self.broken:
            raise TimeoutError(namespace)
        return namespace in self.there

    def has(self, namespace: str) -> bool:
        return asyncio.run(self.accounts.exists(namespace, "worker"))

    def changes(self) -> set[str]:
        self.seconds += self.accounts.pause_s
        changed, self.failed = asyncio.run(self.accounts.find_changes())
        return changed


def test_an_account_that_goes_is_seen_within_seconds_and_so_is_its_return() -> None:
    found = Namespaces("team", "other")
    assert found.has("team")
    assert found.has("other")
    assert found.changes() == set()
    found.there.discard("team")
    assert found.changes() == {"team"}
    assert not found.has("team")
    assert found.changes() == set()
    found.there.add("team")
    assert found.changes() == {"team"}
    assert found.has("team")
    assert found.accounts.pause_s <= 5


def test_an_account_that_cannot_be_read_hides_no_other_that_has_gone() -> None:
    found = Namespaces("team", "other", "third")
    assert all(found.has(name) for name in ("team", "other", "third"))
    found.there -= {"team", "third"}
    found.broken.add("other")
    assert found.changes() == {"team", "third"}
    assert isinstance(found.failed, TimeoutError)


def test_looks_at_jobs_ask_for_no_account_that_is_read_in_turn() -> None:
    found = Namespaces("team")
    assert found.has("team")
    for _ in range(20):
        asked = found.asked
        assert found.has("team")
        assert found.asked == asked
        found.changes()


def test_an_account_that_no_job_uses_any_more_is_not_read() -> None:
    found = Namespaces("team")
    assert found.has("team")
    found.seconds += 1000
    asked = found.asked
    assert found.changes() == set()
    assert found.asked == asked


def test_an_account_that_goes_while_a_run_works_is_named_and_stalls_nothing() -> None:
    story = running(stallTimeoutSeconds=600)
    story.api.accounts.clear()
    story.pass_time(5)
    assert story.where == ("Running", "NamespaceNotPrepared")
    assert "has no ServiceAccount 'tokenization-worker'. Prepare it" in story.status["message"]
    story.pass_time(2 * HOUR_S)
    assert story.where == ("Running", "NamespaceNotPrepared")
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.api.accounts.add("tokenization-worker")
    story.pass_time(5)
    assert story.where == ("Running", "Running")
    story.pass_time(590)
    assert story.where == ("Running", "Running"), "a kubelet may renew the Pod's token by then"
    story.pass_time(HOUR_S - 590)
    assert story.where == ("Retrying", "Stalled")


@pytest.mark.parametrize("kind", [Kind.PLAN_JOB, Kind.RAY_JOB])
def test_an_account_that_goes_before_anything_works_is_named_until_it_is_back(kind: Kind) -> None:
    story = Story() if kind is Kind.PLAN_JOB else planned()
    phase, reason = story.where
    story.api.accounts.clear()
    story.pass_time(5)
    assert story.where == (phase, "NamespaceNotPrepared")
    story.api.accounts.add("tokenization-worker")
    story.pass_time(5)
    assert story.where == (phase, reason)


def test_kinds_that_go_while_a_run_works_are_named_and_their_return_goes_on() -> None:
    story = running()
    story.api.kuberay = KubeRay.MISSING
    story.api.remove(Kind.RAY_JOB, "demo-r1-a1")
    story.settle()
    assert story.where == ("Pending", "KubeRayUnavailable")
    assert "failures" not in story.status
    story.pass_time(600)
    assert story.where == ("Pending", "KubeRayUnavailable")
    story.api.kuberay = KubeRay.AVAILABLE
    story.settle()
    assert story.where == ("Retrying", "RayJobGone")
    story.pass_time(60)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]


def test_a_run_that_an_older_operator_has_followed_for_hours_is_not_stalled() -> None:
    """It has left no `progressTime`, and the driver tells nothing new while the operator is upgraded."""
    story = running(stallTimeoutSeconds=1800)
    attempt = story.status["attempt"]
    early = time_text(story.now - timedelta(hours=2))
    changes = {"runningTime": early, "admittedTime": early, "startTime": early, "progressTime": None}
    story.api.edit(Kind.JOB, NAME, {"attempt": changes}, is_status=True)
    story.restart()
    story.pass_time(1)
    assert story.where == ("Running", "Running")
    assert story.status["attempt"]["number"] == attempt["number"]
    story.pass_time(1800 + 2 * 60)
    assert story.where == ("Retrying", "Stalled")
