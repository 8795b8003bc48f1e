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
from kubernetes import client, watch

from support.cluster.jobs import Jobs, wait_for
from support.cluster.operators import Process, Release, stop
from support.cluster.player import Player
from support.cluster.several_operators import IMAGE, seeing, spec, wait_for_success
from testbed.api_proxy import ApiProxy, Asked
from tokenization_operator.kube.election import LEASE_S, RETRY_S

pytestmark = [pytest.mark.testbed, pytest.mark.slow, pytest.mark.timeout(3600)]

LOSSES = int(os.environ.get("LOSSES", "3"))
"""How often the leader is killed, frozen or cut off."""

JOBS = 60
RELEASES = 5
"""How often a leader stops until its Lease was released: it does not wait for an API server that is slow."""

MOST_LOOKS = LEASE_S / RETRY_S + 4
"""Of a replica at a Lease that nobody renews any more: it looks every two seconds at most, and takes a Lease that has
run out with the first look. Few more are by chance: one that is on its way, and one that begins an election anew."""


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
            return holder_of(lease)
        return ""

    def leader(self, but: str = "") -> Replica:
        """The holder, once there is one other than `but`."""
        name = wait_for(lambda: self.holder, lambda holder: holder not in ("", but))
        return next(each for each in self.all if each.identity == name)

    def other(self, than: Replica) -> Replica:
        [found] = [each for each in self.all if each is not than]
        return found

    def now(self) -> str:
        """A moment, for `holders_since`."""
        return str(self._leases.list_namespaced_lease(self._release.namespace).metadata.resource_version)

    def holders_since(self, moment: str, last: Replica) -> list[str]:
        """Who has held the Lease, one after the other, until that replica did; empty where it was released."""
        holders: list[str] = []
        how = {"resource_version": moment, "timeout_seconds": 60}
        for event in watch.Watch().stream(self._leases.list_namespaced_lease, self._release.namespace, **how):
            holders.append(holder_of(event["object"]))
            if holders[-1] == last.identity:
                break
        return holders

    def replace(self, old: Replica) -> None:
        self.all[self.all.index(old)] = self.start()


def holder_of(lease: client.V1Lease) -> str:
    return str(lease.spec.holder_identity or "").partition("_")[0]


def looks(asked: list[Asked]) -> int:
    """How often a replica has read the Lease before it took it."""
    methods = [each.method for each in asked if "/leases" in each.path]
    return methods.index("PUT") if "PUT" in methods else len(methods)


@contextmanager
def replicas(release: Release, api: client.ApiClient) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(release, api, stack)


@pytest.mark.core
def test_one_works_and_the_other_takes_over_at_once_when_it_stops(
    release: Release, jobs: Jobs, api: client.ApiClient
) -> None:
    with replicas(release, api) as two:
        first = two.leader()
        second = two.other(first)
        jobs.apply("one", spec("one") | {"suspend": True})
        jobs.wait("one", lambda status: status.get("phase") == "Planning")
        assert writes(first.proxy)
        assert not writes(second.proxy)
        for _ in range(RELEASES):
            moment = two.now()
            assert stop(first.process) == 0
            assert two.leader(first.identity) is second
            if "" in two.holders_since(moment, second):
                break
            two.replace(first)
            first, second = second, two.other(second)
        else:
            pytest.fail("the Lease was not released")
        jobs.apply("two", spec("two") | {"suspend": True})
        jobs.wait("two", lambda status: status.get("phase") == "Planning")


@pytest.mark.parametrize("how", ["frozen", "cut off"])
def test_an_operator_that_comes_back_late_writes_nothing(
    how: str, release: Release, jobs: Jobs, api: client.ApiClient
) -> None:
    with replicas(release, api) as two, Player(api, jobs.namespace, 1.0) as player:
        jobs.apply("one", spec("one"))
        first = two.leader()
        jobs.wait("one", lambda status: status.get("phase") in ("Planning", "Starting", "Running"))
        lose(first, how)
        two.leader(first.identity)
        asked = len(writes(first.proxy))
        go_on(first, how)
        jobs.edit("one", {"stallTimeoutSeconds": 1234})  # to be seen by both, and no reason for another attempt
        jobs.apply("two", spec("two"))
        player.finish()
        for name in ("one", "two"):
            jobs.reach(name, "Succeeded")
        reads = len(first.proxy.asked)
        wait_for(lambda: len(first.proxy.asked), lambda now: now > reads)  # it lives, and waits for the Lease
        assert len(writes(first.proxy)) == asked
        assert jobs.count_attempts("one") == jobs.count_attempts("two") == 1


def lose(replica: Replica, how: str) -> None:
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
    looked: list[int] = []
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
            standby = two.other(leader).proxy
            lose(leader, how)
            began, before = time.monotonic(), len(standby.asked)
            two.leader(leader.identity)
            took.append(time.monotonic() - began)
            looked.append(looks(standby.asked[before:]))
            go_on(leader, how)
            if how == "killed":
                two.replace(leader)
        player.finish()
        wait_for_success(jobs, JOBS)
    record_property("take_over_s", took)
    times = ", ".join(f"{each:.1f}" for each in sorted(took))
    print(f"\n{LOSSES} losses of the leader; the Lease was taken over after {times} s, with {looked} looks at it")
    assert sorted(seen.made) == sorted(f"job-{number}-r1-a1" for number in range(JOBS))
    assert not seen.doubled
    assert max(looked) <= MOST_LOOKS
