"""The Lease and the fence, on a Lease in memory and clocks that the tests move: one operator writes at a time."""

from __future__ import annotations

import copy
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import leaderelection
from kubernetes.leaderelection.electionconfig import Config
from urllib3.exceptions import MaxRetryError

from tokenization_operator.kube.election import LEASE_S, RENEW_S, RETRY_S, LeaseLock
from tokenization_operator.kube.fence import Fence, NotLeading
from tokenization_operator.settings import LeaseSettings


class Leases:
    """An API server with one Lease. `fails`: in place of the next answers."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.version = 0
        self.fails: Exception | None = None

    def read_namespaced_lease(self, name: str, namespace: str, **_: Any) -> Any:
        self._answer()
        if self.lease is None:
            raise ApiException(status=404, reason="Not Found")
        return copy.deepcopy(self.lease)

    def create_namespaced_lease(self, namespace: str, lease: Any, **_: Any) -> None:
        self._answer()
        if self.lease is not None:
            raise ApiException(status=409, reason="AlreadyExists")
        self._store(lease)

    def replace_namespaced_lease(self, name: str, namespace: str, lease: Any, **_: Any) -> None:
        self._answer()
        if lease.metadata.resource_version != self.lease.metadata.resource_version:
            raise ApiException(status=409, reason="Conflict")
        self._store(lease)

    def _store(self, lease: Any) -> None:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        self.lease.metadata.resource_version = str(self.version)

    def _answer(self) -> None:
        if self.fails is not None:
            raise self.fails


class Candidate:
    """An operator whose time of day is wrong by `skew_s`."""

    def __init__(self, leases: Leases, world: World, name: str, skew_s: float = 0.0) -> None:
        self._world, self._skew_s = world, skew_s
        self.fence = Fence(lambda: world.now)
        self.fence.close()
        self.held = 0
        self.lock = LeaseLock(leases, LeaseSettings("team", "operator", name), self.fence, self._is_held)
        config = Config(self.lock, LEASE_S, RENEW_S, RETRY_S, lambda: None, lambda: None)
        self._election = leaderelection.LeaderElection(config)

    def _is_held(self) -> None:
        self.held += 1

    def step(self, seconds: float) -> None:
        """An administrator sets the time of day."""
        self._skew_s += seconds

    def try_it(self) -> bool:
        self._world.skew_s = self._skew_s
        return bool(self._election.try_acquire_or_renew())


class World:
    """The true time, and the time of day on the machine of the operator that asks."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.skew_s = 0.0

    def time(self) -> float:
        return self.now + self.skew_s


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(leaderelection, "time", SimpleNamespace(time=world.time))
    return world


def test_without_a_lease_the_fence_is_always_open() -> None:
    assert Fence().is_open
    assert Fence().left_s() > 1e9


def test_a_holder_may_write_until_its_renewal_is_too_old(world: World) -> None:
    holder = Candidate(Leases(), world, "one")
    assert holder.try_it()
    world.now += RENEW_S - 1
    assert holder.fence.left_s() == pytest.approx(1)
    world.now += 1
    assert not holder.fence.is_open
    with pytest.raises(NotLeading):
        holder.fence.left_s()


def test_an_answer_that_comes_late_opens_the_fence_from_the_moment_of_asking(world: World) -> None:
    leases = Leases()
    holder = Candidate(leases, world, "one")
    store = leases._store

    def late(lease: Any) -> None:
        world.now += RENEW_S + 1
        store(lease)

    leases._store = late  # type: ignore[method-assign]
    assert holder.try_it()
    assert not holder.fence.is_open


def test_another_one_takes_over_when_the_lease_has_run_out_and_not_before(world: World) -> None:
    leases = Leases()
    one, two = Candidate(leases, world, "one"), Candidate(leases, world, "two", skew_s=-7200)
    assert one.try_it()
    assert not two.try_it()
    world.now += LEASE_S - 1
    assert not two.try_it()
    world.now += 2
    assert two.try_it()
    assert leases.lease.spec.holder_identity == "two"
    assert leases.lease.spec.lease_transitions == 1


def test_a_holder_that_reads_of_another_one_writes_no_more(world: World) -> None:
    leases = Leases()
    one = Candidate(leases, world, "one")
    one.try_it()
    leases.lease.spec.holder_identity = "two"  # as an administrator may do
    assert not one.try_it()
    assert not one.fence.is_open


def test_a_lease_that_is_released_is_taken_at_once_and_not_taken_back(world: World) -> None:
    leases = Leases()
    one, two = Candidate(leases, world, "one"), Candidate(leases, world, "two")
    one.try_it()
    two.try_it()
    one.lock.release()
    assert not one.fence.is_open
    assert not one.try_it()
    assert two.try_it()
    one.lock.release()
    assert leases.lease.spec.holder_identity == "two"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiException(status=500, reason="down"), 500),
        (ApiException(status=0, reason="Invalid kube-config file"), 503),
        (MaxRetryError(None, "/apis", None), 503),  # type: ignore[arg-type]
    ],
    ids=["answered", "not asked", "no connection"],
)
def test_failed_calls_are_reported_and_raise_nothing(world: World, error: Exception, code: int) -> None:
    leases = Leases()
    holder = Candidate(leases, world, "one")
    holder.try_it()
    leases.fails = error
    is_there, said = holder.lock.get("operator", "team")
    assert not is_there
    assert json.loads(said.body)["code"] == code  # type: ignore[union-attr]
    assert not holder.try_it()
    leases.fails = None
    assert holder.try_it()


def test_a_lease_without_a_spec_is_taken(world: World) -> None:
    leases = Leases()
    leases._store(client.V1Lease(metadata=client.V1ObjectMeta(name="operator")))
    assert Candidate(leases, world, "one").try_it()


MOVES = st.lists(
    st.one_of(
        st.floats(0.1, 2 * LEASE_S),
        st.tuples(st.integers(0, 1), st.sampled_from(["well", "cut off", "told to stop", 20.0, -3600.0])),
    ),
    max_size=60,
)


@given(moves=MOVES, skews=st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)))
def test_never_may_two_operators_write(moves: list[Any], skews: tuple[float, float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world, leases = World(), Leases()
        patch.setattr(leaderelection, "time", SimpleNamespace(time=world.time))
        sides = [Candidate(leases, world, str(number), skew) for number, skew in enumerate(skews)]
        for move in moves:
            if isinstance(move, float):
                world.now += move
                continue
            number, how = move
            leases.fails = ApiException(status=500) if how == "cut off" else None
            if isinstance(how, float):
                sides[number].step(how)
            elif how == "told to stop":
                sides[number].lock.release()
                sides[number] = Candidate(leases, world, f"{number} again", skews[number])
            else:
                sides[number].try_it()
            assert sum(side.fence.is_open for side in sides) <= 1


@pytest.mark.parametrize("seconds", [20.0, -3600.0], ids=["forward", "back"])
def test_a_time_of_day_that_jumps_moves_no_lease(seconds: float, world: World) -> None:
    leases = Leases()
    one, two = Candidate(leases, world, "one"), Candidate(leases, world, "two")
    one.try_it()
    assert not two.try_it()
    two.step(seconds)
    assert not two.try_it()
    assert one.fence.is_open
    world.now += LEASE_S
    assert two.try_it()


def test_each_opening_of_the_fence_is_reported(world: World) -> None:
    """What was due while it was closed has to be looked at, also where no other operator held the Lease."""
    holder = Candidate(Leases(), world, "one")
    for told in (1, 2):
        assert holder.try_it()
        assert holder.try_it()
        assert holder.held == told
        world.now += RENEW_S


def test_a_release_waits_for_no_renewal_that_hangs(world: World) -> None:
    leases = Leases()
    holder = Candidate(leases, world, "one")
    holder.try_it()
    with holder.lock._one_at_a_time:
        began = time.monotonic()
        holder.lock.release()
        assert time.monotonic() - began < 60  # without a limit it waits for ever
    assert not holder.fence.is_open
    assert leases.lease.spec.holder_identity == "one"
