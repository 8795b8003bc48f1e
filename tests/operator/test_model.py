"""Whatever users, Pods, KubeRay and the operators' own deaths do, in whatever order: what always holds, holds.

Two operators look at one job with caches that lag behind. Each step is one thing that somebody does; calls of the two
operators alternate. In the end all is quiet, and the job is where its user wanted it.
"""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from typing import Any

from fake_api import NAMESPACE, FakeCluster, Killed
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from story import NAME, SETTINGS, Story

from tokenization_operator.cache import Cache
from tokenization_operator.kinds import Kind
from tokenization_operator.metrics import Metrics
from tokenization_operator.reconciler import Reconciler


class Side:
    """One operator."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.start()

    def start(self) -> None:
        """Begin anew, with a list of all that is there."""
        self.cluster = FakeCluster(self.story.api)
        self.cache = Cache()
        self.news: list[Any] = []
        self.reconciler = Reconciler(self.cache, self.cluster, SETTINGS, Metrics(), lambda: self.story.now)
        for (kind, _), item in self.story.api.objects.items():
            self.cache.put(kind, copy.deepcopy(item))

    async def look(self) -> None:
        try:
            await self.reconciler.look((NAMESPACE, NAME))
        except Killed:
            self.start()
        finally:
            self.cluster.dies_before = None


class Jobs(RuleBasedStateMachine):
    """The steps."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.sides = [Side(self.story), Side(self.story)]
        self.tokens = 0
        self.wanted: str | None = None

    # Operators

    def hear(self, number: int, most: int | None) -> None:
        """Hand out the news to both, of which one side hears only the oldest."""
        for side in self.sides:
            side.news.extend(self.story.api.news)
        self.story.api.news.clear()
        side = self.sides[number]
        count = len(side.news) if most is None else most
        heard, side.news = side.news[:count], side.news[count:]
        for what, kind, item in heard:
            (side.cache.drop if what == "DELETED" else side.cache.put)(kind, item)

    @rule(number=st.integers(0, 1), most=st.one_of(st.none(), st.integers(0, 4)))
    def look(self, number: int, most: int | None) -> None:
        self.hear(number, most)
        asyncio.run(self.sides[number].look())

    @rule(most=st.one_of(st.none(), st.integers(0, 4)))
    def both_look(self, most: int | None) -> None:
        self.hear(0, None)
        self.hear(1, most)

        async def both() -> None:
            await asyncio.gather(*(side.look() for side in self.sides))

        asyncio.run(both())

    @rule(number=st.integers(0, 1), calls=st.integers(0, 6))
    def die(self, number: int, calls: int) -> None:
        """Killed in the middle of a look, and started again."""
        self.hear(number, None)
        self.sides[number].cluster.dies_before = calls
        asyncio.run(self.sides[number].look())

    @rule(seconds=st.sampled_from([1, 15, 61, 700, 4000]))
    def pass_time(self, seconds: int) -> None:
        self.story.now += timedelta(seconds=seconds)

    # The user

    @rule(value=st.booleans())
    def suspend(self, value: bool) -> None:
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"suspend": value}})

    @rule()
    def rerun(self) -> None:
        self.tokens += 1
        self.wanted = str(self.tokens)
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": self.wanted}})

    @rule()
    def remove_token(self) -> None:
        self.wanted = None
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"rerunToken": None}})

    @rule(limit=st.integers(0, 9))
    def raise_limit(self, limit: int) -> None:
        self.story.api.edit(Kind.JOB, NAME, {"spec": {"maxQuarantined": limit}})

    @rule(kind=st.sampled_from([Kind.PLAN_JOB, Kind.RAY_JOB]))
    def delete_child(self, kind: Kind) -> None:
        """One that the status knows; a RayJob that is deleted in the moment of its creation is made once more."""
        attempt = self.story.status.get("attempt") or {}
        for name in self.story.names(kind)[:1]:
            if kind is Kind.PLAN_JOB or name == attempt.get("rayJobName"):
                self.story.api.delete(kind, name)

    @rule()
    def finalizers_end(self) -> None:
        self.story.api.let_go()

    # Pods and KubeRay

    def _checkpoint(self) -> str | None:
        run = self.story.status.get("run")
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
        status = {"jobDeploymentStatus": state[0], "jobStatus": state[1], "rayClusterName": f"{name}-c"}
        self.story.api.edit(Kind.RAY_JOB, name, status | {"endTime": "2026-11-22T12:00:00Z"}, is_status=True)

    @precondition(lambda self: self._checkpoint() and self.story.names(Kind.RAY_JOB))
    @rule()
    def commit(self) -> None:
        spec = self.story.api.objects[Kind.CHECKPOINT, self._checkpoint()]["spec"]["run"]
        proof = {"jobUid": spec["jobUid"], "run": spec["number"], "runKey": spec["runKey"]}
        self._report(committed=proof | {"indexUri": "gs://tokens/demo/index.json", "indexDigest": "0"})

    # What always holds

    @invariant()
    def one_ray_job(self) -> None:
        assert len(self.story.names(Kind.RAY_JOB)) <= 1, self.story.names(Kind.RAY_JOB)

    @invariant()
    def one_ray_job_an_attempt(self) -> None:
        made = self.story.made(Kind.RAY_JOB)
        assert len(made) == len(set(made)), made

    @invariant()
    def no_success_without_a_commit(self) -> None:
        status = self.story.status
        if status.get("phase") == "Succeeded":
            run = status["run"]
            checkpoint = self.story.api.objects[Kind.CHECKPOINT, run["checkpoint"]]
            committed = (checkpoint.get("status") or {}).get("committed")
            assert committed is not None
            assert (committed["run"], committed["runKey"]) == (run["number"], run["runKey"])

    @invariant()
    def no_end_of_an_earlier_run_for_a_new_token(self) -> None:
        """Tools that look at a commit take it for this one's."""
        job = self.story.job
        status, token = self.story.status, job["spec"].get("rerunToken")
        is_current = status.get("observedGeneration") == job["metadata"]["generation"]
        if is_current and token is not None and status.get("phase") in ("Succeeded", "Failed"):
            assert status["run"].get("rerunToken") == token

    def teardown(self) -> None:
        """In the end all is quiet, and the last token has its run."""
        for _ in range(40):
            made = len(self.story.api.made)
            self.story.api.let_go()
            for number in (0, 1):
                self.hear(number, None)
                asyncio.run(self.sides[number].look())
                self.one_ray_job()
            self.one_ray_job_an_attempt()
            if len(self.story.api.made) == made and not self.story.api.news and not any(s.news for s in self.sides):
                break
        else:
            raise AssertionError(f"never quiet: {self.story.status}")
        if self.wanted is not None:
            assert self.story.status["run"]["rerunToken"] == self.wanted
        self.no_success_without_a_commit()


TestJobs = Jobs.TestCase
TestJobs.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
