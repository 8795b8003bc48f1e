"""Whatever users, Pods, KubeRay and the operators' own deaths do, in whatever order: what always holds, holds.

Two operators look at one job with caches that lag behind. Each step is one action of one actor; calls of the two
operators alternate. In the end all is quiet, and the job is where its user wanted it.
"""

from __future__ import annotations

import asyncio
import copy
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.cluster.fake_api import NAMESPACE, FakeKubeClient, Killed
from support.cluster.story import NAME, SETTINGS, Story, manifest
from tokenization_operator.informer.cache import Cache
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object, is_owned
from tokenization_operator.reconciler import Reconciler

pytestmark = pytest.mark.slow

SEEDS = 20
MOVES = 200


class Side:
    """One operator. `skew_s`: how wrong the clock of its machine is."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.skew_s = 0
        self.frozen: asyncio.Task[None] | None = None
        self.start()

    def start(self) -> None:
        """Begin anew, with a list of all that is there."""
        self.kube = FakeKubeClient(self.story.api)
        self.cache = Cache()
        self.news: list[Any] = []
        self.reconciler = Reconciler(self.cache, self.kube, SETTINGS, Metrics(), self.now)
        for (kind, _), item in self.story.api.objects.items():
            self.cache.put(kind, copy.deepcopy(item))

    def now(self) -> datetime:
        return self.story.now + timedelta(seconds=self.skew_s)

    async def reconcile(self) -> None:
        try:
            await self.reconciler.reconcile((NAMESPACE, NAME))
        except Killed:
            self.start()
        finally:
            self.kube.dies_before = self.kube.freezes_before = None

    async def freeze(self, calls: int) -> None:
        """Look until so many calls are done, and no further; an operator that needs fewer has looked."""
        self.kube.freezes_before = calls
        self.frozen = asyncio.ensure_future(self.reconcile())
        while not self.frozen.done() and not self.kube.is_frozen:
            await asyncio.sleep(0)
        if self.frozen.done():
            await self.thaw()

    async def thaw(self) -> None:
        """Go on where it was."""
        frozen, self.frozen = self.frozen, None
        if frozen is not None:
            self.kube.thaw()
            await frozen


class Jobs(RuleBasedStateMachine):
    """The steps."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.story = Story()
        self.story.api.before_delete = self.deletes_in_error
        self.sides = [Side(self.story), Side(self.story)]
        self.tokens = 0
        self.wanted: str | None = None
        self.born = 0
        self.clusters = 0

    def is_there(self) -> bool:
        return (Kind.JOB, NAME) in self.story.api.objects

    def awake(self) -> list[Side]:
        return [side for side in self.sides if side.frozen is None]

    # Operators

    def hear(self, side: Side, most: int | None) -> None:
        """Hand out the news to both, of which one side hears only the oldest."""
        for each in self.sides:
            each.news.extend(self.story.api.news)
        self.story.api.news.clear()
        count = len(side.news) if most is None else most
        heard, side.news = side.news[:count], side.news[count:]
        for what, kind, item in heard:
            (side.cache.drop if what == "DELETED" else side.cache.put)(kind, item)

    @precondition(lambda self: self.awake())
    @rule(number=st.integers(0, 1), most=st.one_of(st.none(), st.integers(0, 4)))
    def reconcile(self, number: int, most: int | None) -> None:
        side = self.awake()[number % len(self.awake())]
        self.hear(side, most)
        self.loop.run_until_complete(side.reconcile())

    @precondition(lambda self: len(self.awake()) == 2)
    @rule(most=st.one_of(st.none(), st.integers(0, 4)))
    def both_look(self, most: int | None) -> None:
        self.hear(self.sides[0], None)
        self.hear(self.sides[1], most)

        async def both() -> None:
            await asyncio.gather(*(side.reconcile() for side in self.sides))

        self.loop.run_until_complete(both())

    @precondition(lambda self: self.awake())
    @rule(number=st.integers(0, 1), calls=st.integers(0, 6))
    def die(self, number: int, calls: int) -> None:
        """Killed in the middle of a look, and started again."""
        side = self.awake()[number % len(self.awake())]
        self.hear(side, None)
        side.kube.dies_before = calls
        self.loop.run_until_complete(side.reconcile())

    @precondition(lambda self: len(self.awake()) == 2)
    @rule(number=st.integers(0, 1), calls=st.integers(0, 3), most=st.one_of(st.none(), st.integers(0, 4)))
    def freeze(self, number: int, calls: int, most: int | None) -> None:
        """Stopped in the middle of a look, with what it has decided; the other one goes on."""
        side = self.sides[number]
        self.hear(side, most)
        self.loop.run_until_complete(side.freeze(calls))

    @precondition(lambda self: len(self.awake()) == 2 and self.is_there())
    @rule(
        number=st.integers(0, 1),
        calls=st.integers(0, 3),
        edit=st.sampled_from(["", "rerun", "raise_limit"]),
        seconds=st.sampled_from([0, 15, 700]),
    )
    def sleep_through(self, number: int, calls: int, edit: str, seconds: int) -> None:
        """One is stopped while its user, the other one and the run go on; and goes on with what it had decided."""
        self.freeze(number, calls, None)
        if edit == "rerun" and self.is_there():
            self.rerun()
        elif edit == "raise_limit" and self.is_there():
            self.raise_limit(seconds)
        self.go_on(1 - number, seconds)
        self.advance(is_well=True, done=1)
        self.go_on(1 - number, 0)
        self.thaw()

    @precondition(lambda self: len(self.awake()) < 2)
    @rule()
    def thaw(self) -> None:
        for side in self.sides:
            self.loop.run_until_complete(side.thaw())

    @precondition(lambda self: self.awake())
    @rule(number=st.integers(0, 1), seconds=st.sampled_from([0, 15, 700]))
    def go_on(self, number: int, seconds: int) -> None:
        """One operator hears all there is and does all there is to do."""
        side = self.awake()[number % len(self.awake())]
        for _ in range(4):
            self.hear(side, None)
            self.loop.run_until_complete(side.reconcile())
            self.story.api.let_go()
            self.story.now += timedelta(seconds=seconds)

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([-7200, -30, 0, 30, 7200]))
    def skew(self, number: int, seconds: int) -> None:
        self.sides[number].skew_s = seconds

    @rule(seconds=st.sampled_from([1, 15, 61, 700, 4000]))
    def pass_time(self, seconds: int) -> None:
        self.story.now += timedelta(seconds=seconds)

    # The user

    @precondition(lambda self: self.is_there())
    @rule(value=st.booleans())
    def suspend(self, value: bool) -> None:
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"suspend": value}})

    @precondition(lambda self: self.is_there())
    @rule()
    def rerun(self) -> None:
        self.tokens += 1
        self.wanted = str(self.tokens)
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": self.wanted}})

    @precondition(lambda self: self.is_there())
    @rule()
    def remove_token(self) -> None:
        self.wanted = None
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": None}})

    @precondition(lambda self: self.is_there())
    @rule(limit=st.integers(0, 9))
    def raise_limit(self, limit: int) -> None:
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"maxQuarantined": limit}})

    @precondition(lambda self: self.is_there())
    @rule(kind=st.sampled_from([Kind.PLAN_JOB, Kind.RAY_JOB]))
    def delete_child(self, kind: Kind) -> None:
        """One that the status knows; a RayJob that is deleted in the moment of its creation is made once more."""
        attempt = self.story.status.get("attempt") or {}
        for name in self.story.names(kind)[:1]:
            if kind is Kind.PLAN_JOB or name == attempt.get("rayJobName"):
                self.story.api.delete(kind, name)

    @precondition(lambda self: self.is_there())
    @rule(seconds=st.sampled_from([None, 0, 60]))
    def set_ttl(self, seconds: int | None) -> None:
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"ttlSecondsAfterFinished": seconds}})

    @precondition(lambda self: not self.is_there())
    @rule()
    def apply_again(self) -> None:
        """A job whose time had come is made anew; its namesake's children are gone by then, or go."""
        self.story.api.let_go()
        self.wanted = None
        self.born = len(self.story.api.made)
        self.story.api.create(Kind.JOB, manifest({}))

    @rule()
    def finalizers_end(self) -> None:
        self.story.api.let_go()

    # Pods and KubeRay

    def _checkpoint(self) -> str | None:
        run = self.story.status.get("run") if self.is_there() else None
        name = run["checkpoint"] if run else None
        return name if (Kind.CHECKPOINT, name) in self.story.api.objects else None

    def _report(self, **parts: Any) -> None:
        self.story.api.edit(Kind.CHECKPOINT, str(self._checkpoint()), parts, is_status=True)

    @precondition(lambda self: self._checkpoint() and self.story.names(Kind.PLAN_JOB))
    @rule(code=st.sampled_from([0, 0, 0, 1, 2, 5]))
    def plan_ends(self, code: int) -> None:
        if not code:
            self._report(plan={"planId": "p", "ranges": 4, "files": 1})
            return
        job = self.story.status["run"]["planJob"]
        said = {"attempt": 0, "exitCode": code, "reason": "Said", "message": "so", "pod": f"{job}-x"}
        self._report(plan={"failure": said})

    @precondition(
        lambda self: self._checkpoint() and self.story.names(Kind.RAY_JOB) and self.story.status.get("attempt")
    )
    @rule(done=st.integers(0, 4))
    def drive(self, done: int) -> None:
        number = self.story.status["attempt"]["number"]
        self._report(progress={"attempt": number, "rangesTotal": 4, "rangesCompleted": done, "percent": done})

    @precondition(lambda self: self.story.names(Kind.RAY_JOB))
    @rule(
        state=st.sampled_from(
            [
                ("Running", "RUNNING"),
                ("Failed", "FAILED"),
                ("Complete", "SUCCEEDED"),
                ("Complete", "STOPPED"),
                ("Suspended", ""),
            ]
        )
    )
    def kuberay(self, state: tuple[str, str]) -> None:
        name = self.story.names(Kind.RAY_JOB)[0]
        cluster = f"{name}-c{self.clusters}"
        status = {"jobDeploymentStatus": state[0], "jobStatus": state[1], "rayClusterName": cluster}
        spec = self.story.api.objects[Kind.RAY_JOB, name]["spec"]
        if state[0] == "Running" and not spec.get("suspend") and f"{cluster}-head" not in self.story.names(Kind.POD):
            self._remove_heads()
            labels = {"tokenization.dev/job": NAME, "ray.io/cluster": cluster, "ray.io/node-type": "head"}
            head = {"metadata": {"name": f"{cluster}-head", "labels": labels}, "status": {"phase": "Running"}}
            self.story.api.create(Kind.POD, head)
        self.story.api.edit(Kind.RAY_JOB, name, status | {"endTime": "2026-11-22T12:00:00Z"}, is_status=True)

    @precondition(lambda self: self.story.names(Kind.RAY_JOB))
    @rule()
    def preempt(self) -> None:
        """Kueue suspends the RayJob, and KubeRay deletes its cluster."""
        name = self.story.names(Kind.RAY_JOB)[0]
        self.story.api.edit(Kind.RAY_JOB, name, {"spec": {"suspend": True}})
        self._remove_heads()
        self.clusters += 1

    @precondition(lambda self: self.story.names(Kind.RAY_JOB))
    @rule()
    def admit(self) -> None:
        self.story.api.edit(Kind.RAY_JOB, self.story.names(Kind.RAY_JOB)[0], {"spec": {"suspend": False}})

    @precondition(lambda self: self.awake() and self.story.names(Kind.RAY_JOB))
    @rule(number=st.integers(0, 1), seconds=st.sampled_from([0, 15, 700]), is_seen=st.booleans())
    def preempt_at_work(self, number: int, seconds: int, is_seen: bool) -> None:
        """It works, is preempted, and goes on; `is_seen`: an operator looks meanwhile."""
        self.kuberay(("Running", "RUNNING"))
        self.go_on(number, 0)
        if self.story.names(Kind.RAY_JOB):
            self.preempt()
        if is_seen:
            self.go_on(number, seconds)
        if self.story.names(Kind.RAY_JOB):
            self.admit()
            self.kuberay(("Initializing", ""))
        self.go_on(number, 0)

    def _remove_heads(self) -> None:
        for name in self.story.names(Kind.POD):
            self.story.api.remove(Kind.POD, name)

    @precondition(lambda self: self._checkpoint() and self.story.names(Kind.RAY_JOB))
    @rule()
    def commit(self) -> None:
        spec = self.story.api.objects[Kind.CHECKPOINT, self._checkpoint()]["spec"]["run"]
        proof = {"jobUid": spec["jobUid"], "run": spec["number"], "runKey": spec["runKey"]}
        self._report(committed=proof | {"indexUri": "gs://tokens/demo/index.json", "indexDigest": "0"})

    @rule(is_well=st.booleans(), done=st.integers(0, 4))
    def advance(self, is_well: bool, done: int) -> None:
        """What comes next in the life of a run, well or badly."""
        phase = self.story.status.get("phase") if self.is_there() else None
        if not self._checkpoint():
            return
        if phase == "Planning" and self.story.names(Kind.PLAN_JOB):
            self.plan_ends(0 if is_well else 5)
        elif phase == "Starting" and self.story.names(Kind.RAY_JOB):
            self.kuberay(("Running", "RUNNING"))
            self.drive(done)
        elif phase == "Running" and is_well:
            self.commit()
        elif phase == "Running" and self.story.names(Kind.RAY_JOB):
            self.kuberay(("Failed", "FAILED"))

    # What always holds

    def deletes_in_error(self, kind: str, item: Object) -> None:
        """Called for each deletion by an operator, before it is done."""
        job = self.story.api.objects.get((Kind.JOB, NAME))
        status = (job or {}).get("status") or {}
        if job is None or not (kind == Kind.JOB or is_owned(item, job["metadata"]["uid"])):
            return  # of a namesake
        run, attempt = status["run"], status.get("attempt") or {}
        is_finished = status["phase"] in ("Succeeded", "Failed")
        if kind == Kind.JOB:
            assert is_finished
            assert status["observedGeneration"] == job["metadata"]["generation"]
        elif item["metadata"]["name"] == f"{NAME}-r{run['number']}-a{attempt.get('number')}":
            assert is_finished or attempt.get("isOver"), f"{item['metadata']['name']} is at work: {status}"

    @invariant()
    def no_head_is_lost_that_was_taken_away(self) -> None:
        """None is lost otherwise, unless its RayJob is deleted."""
        status = self.story.status if self.is_there() else {}
        lost = [each for each in status.get("lastFailures") or () if each["reason"] == "HeadLost"]
        assert not lost, status

    @invariant()
    def one_ray_job(self) -> None:
        assert len(self.story.names(Kind.RAY_JOB)) <= 1, self.story.names(Kind.RAY_JOB)

    @invariant()
    def no_attempt_has_the_ray_job_of_another_one(self) -> None:
        status = self.story.status if self.is_there() else {}
        attempt = status.get("attempt") or {}
        name = f"{NAME}-r{status['run']['number']}-a{attempt['number']}" if attempt else None
        assert attempt.get("rayJobName") in (None, name)

    @invariant()
    def one_ray_job_an_attempt(self) -> None:
        made = [name for kind, name in self.story.api.made[self.born :] if kind == Kind.RAY_JOB]
        assert len(made) == len(set(made)), made

    @invariant()
    def no_success_without_a_commit(self) -> None:
        status = self.story.status if self.is_there() else {}
        if status.get("phase") == "Succeeded":
            run = status["run"]
            checkpoint = self.story.api.objects[Kind.CHECKPOINT, run["checkpoint"]]
            committed = (checkpoint.get("status") or {}).get("committed")
            assert committed is not None
            assert (committed["run"], committed["runKey"]) == (run["number"], run["runKey"])

    @invariant()
    def no_end_of_an_earlier_run_for_a_new_token(self) -> None:
        """Tools that look at a commit take it for this one's."""
        if not self.is_there():
            return
        job = self.story.job
        status, token = self.story.status, job["spec"].get("rerunToken")
        is_current = status.get("observedGeneration") == job["metadata"]["generation"]
        if is_current and token is not None and status.get("phase") in ("Succeeded", "Failed"):
            assert status["run"].get("rerunToken") == token

    def teardown(self) -> None:
        """In the end all is quiet, and the last token has its run."""
        self.thaw()
        for _ in range(40):
            made = len(self.story.api.made)
            self.story.api.let_go()
            for side in self.sides:
                self.hear(side, None)
                self.loop.run_until_complete(side.reconcile())
                self.one_ray_job()
            self.one_ray_job_an_attempt()
            if len(self.story.api.made) == made and not self.story.api.news and not any(s.news for s in self.sides):
                break
        else:
            raise AssertionError(f"never quiet: {self.story.status}")
        if self.wanted is not None and self.is_there():
            assert self.story.status["run"]["rerunToken"] == self.wanted
        self.no_success_without_a_commit()
        self.loop.close()


TestJobs = Jobs.TestCase
TestJobs.settings = settings(
    max_examples=100, stateful_step_count=50, suppress_health_check=list(HealthCheck), print_blob=True
)

LONG = settings(TestJobs.settings, max_examples=3, stateful_step_count=MOVES, database=None, phases=[Phase.generate])
"""The first of the examples is always the simplest."""


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(SEEDS))
def test_nothing_that_always_holds_is_broken_by_two_hundred_moves(number: int) -> None:
    run_state_machine_as_test(seed(number)(type("Long", (Jobs,), {})), settings=LONG, _min_steps=MOVES)
