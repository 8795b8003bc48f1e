"""Two operators at once, many jobs, and whatever users and machines do to them, on a real API server.

Plan Pods and drivers are played: what is looked at here is who makes what, and how often.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from support.cluster.jobs import Jobs
from support.cluster.operators import Process, Release
from support.cluster.player import Player
from support.cluster.several_operators import IMAGE, seeing, spec, wait_for_success
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.slow, pytest.mark.timeout(3600)]

JOBS = 100
STEPS = 60


def test_two_operators_make_one_ray_job_for_each_of_a_hundred_jobs(
    release: Release, jobs: Jobs, api: client.ApiClient
) -> None:
    with ExitStack() as stack:
        seen = stack.enter_context(seeing(api, jobs.namespace))
        stack.enter_context(Player(api, jobs.namespace, 5.0, reports=2))
        for _ in range(2):
            stack.enter_context(release.operator(image=IMAGE))
        for number in range(JOBS):
            jobs.apply(f"job-{number}", spec(f"job-{number}"))
        wait_for_success(jobs, JOBS)
    assert sorted(seen.made) == sorted(f"job-{number}-r1-a1" for number in range(JOBS))
    assert not release.errors()


class RandomActor:
    """Users, machines and operators, one step at a time, by chance."""

    def __init__(self, jobs: Jobs, release: Release, stack: ExitStack, chance: random.Random) -> None:
        self._jobs = jobs
        self._release = release
        self._stack = stack
        self._chance = chance
        self._operators = [self._start() for _ in range(2)]
        self.token = "0"

    def _start(self) -> Process:
        return self._stack.enter_context(self._release.operator(image=IMAGE))

    def step(self) -> None:
        self._chance.choice(
            [self.suspend, self.resume, self.rerun, self.raise_limit, self.delete_ray_job, self.delete_plan, self.kill]
        )()

    def suspend(self) -> None:
        self._jobs.edit("demo", {"suspend": True})

    def resume(self) -> None:
        self._jobs.edit("demo", {"suspend": False})

    def rerun(self) -> None:
        self.token = str(int(self.token) + 1)
        self._jobs.edit("demo", {"rerunToken": self.token})

    def raise_limit(self) -> None:
        self._jobs.edit("demo", {"maxQuarantined": self._chance.randrange(100)})

    def delete_ray_job(self) -> None:
        self._delete_one(Kind.RAY_JOB)

    def delete_plan(self) -> None:
        self._delete_one(Kind.PLAN_JOB)

    def _delete_one(self, kind: Kind) -> None:
        for name in self._jobs.names(kind)[:1]:
            try:
                self._jobs.delete(name, kind)
            except ApiException as error:  # gone in between
                if error.status != 404:
                    raise

    def kill(self) -> None:
        number = self._chance.randrange(2)
        self._operators[number].send_signal(signal.SIGKILL)
        self._operators[number].wait()
        self._operators[number] = self._start()


@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("SEEDS", "1"))))
def test_whatever_happens_to_a_job_it_has_one_ray_job_at_a_time_and_ends(
    seed: int, release: Release, jobs: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        seen = stack.enter_context(seeing(api, jobs.namespace))
        stack.enter_context(Player(api, jobs.namespace, 1.0, reports=4))
        jobs.apply("demo", spec("demo"))
        actor = RandomActor(jobs, release, stack, chance)
        for _ in range(STEPS):
            actor.step()
            if chance.random() < 0.5:  # the operators have seen it
                generation = jobs.get("demo")["metadata"]["generation"]
                jobs.wait("demo", lambda status, least=generation: status.get("observedGeneration", 0) >= least)
        actor.resume()
        status = jobs.wait(
            "demo",
            lambda status: status.get("phase") == "Succeeded" and status["run"]["rerunToken"] == actor.token,
        )
    assert status["reason"] == "Committed"
    assert seen.made
    assert not seen.doubled
    assert len(seen.made) == len(set(seen.made))
