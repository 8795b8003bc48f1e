"""Two replicas with a Lease, on a real API server: one works, the other takes over, a fence keeps the late one out."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client

from support.cluster.jobs import Jobs, wait_for
from support.cluster.operators import Process, Release
from support.cluster.player import Player
from support.cluster.several_operators import IMAGE, PATIENCE_S, seeing, spec
from testbed.api_proxy import ApiProxy, Asked
from tokenization_operator.kube.election import LEASE_S, RETRY_S
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

LOSSES = int(os.environ.get("LOSSES", "3"))
"""How often the leader is killed, frozen or cut off."""

JOBS = 60
TAKE_OVER_S = 20.0


def writes(proxy: ApiProxy) -> list[Asked]:
    """What was asked for that changes anything but the Lease; a dry run changes nothing."""
    return [
        each
        for each in proxy.asked
        if each.method not in ("GET", "HEAD") and "/leases" not in each.path and not each.is_dry_run
    ]


@dataclass
class Replica:
    """An operator behind a proxy of its own; `identity`: how its name in the Lease begins."""

    process: Process
    proxy: ApiProxy
    identity: str


class Replicas:
    """Two operators, and the Lease that one of them holds."""

    def __init__(self, release: Release, api: client.ApiClient, stack: ExitStack) -> None:
        self._release, self._api, self._stack = release, api, stack
        self._leases = client.CoordinationV1Api(api)
        self._count = 0
        self.all = [self.start() for _ in range(2)]

    def start(self) -> Replica:
        self._count += 1
        identity = f"replica-{self._count}"
        proxy = self._stack.enter_context(ApiProxy.of(self._api))
        operator = self._release.operator(server=proxy.url, has_lease=True, image=IMAGE, TOKENIZATION_POD_NAME=identity)
        return Replica(self._stack.enter_context(operator), proxy, identity)

    @property
    def holder(self) -> str:
        """Who holds the Lease; empty where there is no Lease."""
        for lease in self._leases.list_namespaced_lease(self._release.namespace).items:
            return str(lease.spec.holder_identity or "").partition("_")[0]
        return ""

    def leader(self, but: str = "") -> Replica:
        """The holder, once there is one other than `but`."""
        name = wait_for(lambda: self.holder, lambda holder: holder not in ("", but), 2 * LEASE_S + TAKE_OVER_S)
        return next(each for each in self.all if each.identity == name)

    def replace(self, old: Replica) -> None:
        self.all[self.all.index(old)] = self.start()


@contextmanager
def replicas(release: Release, api: client.ApiClient) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(release, api, stack)


def test_one_works_and_the_other_takes_over_at_once_when_it_stops(
    release: Release, jobs: Jobs, api: client.ApiClient
) -> None:
    with replicas(release, api) as two:
        first = two.leader()
        [second] = [each for each in two.all if each is not first]
        jobs.apply("one", spec("one") | {"suspend": True})
        jobs.wait("one", lambda status: status.get("phase") == "Planning")
        assert writes(first.proxy)
        assert not writes(second.proxy)
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(20) == 0
        began = time.monotonic()
        assert two.leader(first.identity) is second
        jobs.apply("two", spec("two") | {"suspend": True})
        jobs.wait("two", lambda status: status.get("phase") == "Planning")
        assert time.monotonic() - began < LEASE_S - RETRY_S, "the Lease was not released"


@pytest.mark.parametrize("how", ["frozen", "cut off"])
def test_an_operator_that_comes_back_late_writes_nothing(
    how: str, release: Release, jobs: Jobs, api: client.ApiClient
) -> None:
    with replicas(release, api) as two, Player(api, jobs.namespace, 1.0, reports=3):
        jobs.apply("one", spec("one"))
        first = two.leader()
        jobs.wait("one", lambda status: status.get("phase") in ("Planning", "Starting", "Running"))
        stop(first, how)
        two.leader(first.identity)
        asked = len(writes(first.proxy))
        go_on(first, how)
        jobs.edit("one", {"maxQuarantined": 7})
        jobs.apply("two", spec("two"))
        for name in ("one", "two"):
            jobs.reach(name, "Succeeded")
        reads = len(first.proxy.asked)
        wait_for(lambda: len(first.proxy.asked), lambda now: now > reads)  # it lives, and waits for the Lease
        assert len(writes(first.proxy)) == asked
        assert jobs.count_attempts("one") == jobs.count_attempts("two") == 1


def stop(replica: Replica, how: str) -> None:
    match how:
        case "killed":
            replica.process.send_signal(signal.SIGKILL)
            replica.process.wait()
        case "frozen":
            replica.process.send_signal(signal.SIGSTOP)
        case "cut off":
            replica.proxy.cut()


def go_on(replica: Replica, how: str) -> None:
    if how == "frozen":
        replica.process.send_signal(signal.SIGCONT)
    elif how == "cut off":
        replica.proxy.heal()


def test_whatever_happens_to_the_leader_each_of_sixty_jobs_has_one_ray_job(
    release: Release, jobs: Jobs, api: client.ApiClient, record_property: Any
) -> None:
    chance = random.Random(LOSSES)
    took: list[float] = []
    with ExitStack() as stack:
        seen = stack.enter_context(seeing(api, jobs.namespace))
        player = stack.enter_context(Player(api, jobs.namespace, 10.0))
        two = Replicas(release, api, stack)
        two.leader()
        for number in range(JOBS):
            jobs.apply(f"job-{number}", spec(f"job-{number}"))
        for number in range(LOSSES):
            leader = two.leader()
            how = ["killed", "frozen", "cut off"][number % 3]
            time.sleep(chance.uniform(0, 2))  # at any moment of its work
            stop(leader, how)
            began = time.monotonic()
            two.leader(leader.identity)
            took.append(time.monotonic() - began)
            go_on(leader, how)
            if how == "killed":
                two.replace(leader)
        player.finish()
        wait_for(
            lambda: [each["status"].get("phase") for each in jobs.all(Kind.JOB) if "status" in each],
            lambda phases: phases == ["Succeeded"] * JOBS,
            PATIENCE_S,
        )
    record_property("take_over_s", took)
    times = ", ".join(f"{each:.1f}" for each in sorted(took))
    print(f"\n{LOSSES} losses of the leader; the Lease was taken over after {times} s")
    assert sorted(seen.made) == sorted(f"job-{number}-r1-a1" for number in range(JOBS))
    assert not seen.doubled
    assert max(took) < TAKE_OVER_S
