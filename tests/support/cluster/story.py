"""One job on an API server in memory, with the parts of the cluster that a test plays: plan Pod, KubeRay, driver."""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.cluster.fake_api import NAMESPACE, FakeApi, FakeKubeClient, Killed, deliver
from tokenization_operator.informer.cache import Cache
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.reconciler import Reconciler
from tokenization_operator.settings import Settings
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.api.types.times import time_text

NAME = "demo"
SETTINGS = Settings(image="worker:1", ray_version="2.60.0")


class Story:
    """Time stands still but for `pass_time`."""

    def __init__(
        self, spec: dict[str, Any] | None = None, settings: Settings = SETTINGS, labels: dict[str, str] | None = None
    ) -> None:
        self.api = FakeApi()
        self.kube = FakeKubeClient(self.api)
        self.cache = Cache()
        self.now = datetime(2026, 11, 22, 12, tzinfo=UTC)
        self.api.clock = lambda: self.now
        self._settings = settings
        self.metrics = Metrics()
        self.restart()
        self.api.create(Kind.JOB, manifest(spec or {}, labels))
        self.settle()

    def restart(self) -> None:
        """Another process of the operator, which knows nothing."""
        self.kube = FakeKubeClient(self.api)
        self.cache = Cache()
        self.reconciler = Reconciler(self.cache, self.kube, self._settings, self.metrics, lambda: self.now)
        self.api.news.clear()
        for (kind, _), item in self.api.objects.items():
            self.cache.put(kind, item)

    def dies_before(self, kind: str) -> None:
        """The operator is killed when it is about to make such a child."""
        self.kube.dies_before_making = kind

    def another_operator(self, cache: Cache | None = None) -> Sleeper:
        """One that has seen all that there is now, or what is in `cache`, and hears nothing any more."""
        if cache is None:
            cache = Cache()
            for (kind, _), item in self.api.objects.items():
                cache.put(kind, copy.deepcopy(item))
        kube = FakeKubeClient(self.api)
        return Sleeper(Reconciler(cache, kube, self._settings, Metrics(), lambda: self.now), kube)

    def reconcile(self) -> float | None:
        deliver(self.api, self.cache)
        return asyncio.run(self.reconciler.reconcile((NAMESPACE, NAME)))

    def settle(self, most: int = 20) -> None:
        """Look until nothing changes any more."""
        for _ in range(most):
            before = self.api.calls, len(self.api.made)
            requeue_after_s = self.reconcile()
            self.reconcile()  # while what it has deleted is leaving
            self.api.let_go()
            quiet = len(self.api.made) == before[1] and not self.api.news
            if quiet and (requeue_after_s is None or requeue_after_s > 0.2):
                return
        raise AssertionError(f"never quiet: {self.status}")

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.settle()

    @property
    def job(self) -> dict[str, Any]:
        return self.api.objects[Kind.JOB, NAME]

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job.get("status") or {}
        return found

    @property
    def where(self) -> tuple[str, str]:
        return self.status["phase"], self.status["reason"]

    @property
    def conditions(self) -> defaultdict[str, str]:
        """A condition that is absent does not hold, as `kubectl wait` and kstatus read it."""
        return defaultdict(lambda: "False", {each["type"]: each["status"] for each in self.status["conditions"]})

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.of(kind)]

    def made(self, kind: str) -> list[str]:
        return [name for found, name in self.api.made if found == kind]

    def edit(self, **spec: Any) -> None:
        self.api.edit(Kind.JOB, NAME, {"spec": spec})
        self.settle()

    # The plan Pod

    def report(self, **parts: Any) -> None:
        """Patch the status of the run's checkpoint."""
        self.api.edit(Kind.CHECKPOINT, self.status["run"]["checkpoint"], parts, is_status=True)
        self.settle()

    def plan(self, **more: Any) -> None:
        """The plan Pod ends well."""
        self.report(plan={"planId": "p", "dataKey": "d", "files": 3, "bytes": 99, "ranges": 4} | more)

    def plan_fails(self, code: int, reason: str) -> None:
        job = self.status["run"]["planJob"]
        self.report(plan={"failure": failure(0, code, reason) | {"pod": f"{job}-x7x7x"}})

    # KubeRay

    def ray(self, **status: Any) -> None:
        """What KubeRay says of the attempt's RayJob."""
        [name] = self.names(Kind.RAY_JOB)
        self.api.edit(Kind.RAY_JOB, name, {"rayClusterName": f"{name}-abcde"} | status, is_status=True)
        self.settle()

    def run(self, done: int = 1) -> None:
        """The driver works."""
        self.ray(jobDeploymentStatus="Running", jobStatus="RUNNING")
        self.progress(done)

    def progress(self, done: int) -> None:
        number = self.status["attempt"]["number"]
        self.report(
            progress={
                "attempt": number,
                "rangesTotal": 4,
                "rangesCompleted": done,
                "percent": 25 * done,
                "tokens": done * 1000,
                "lastRangeTime": time_text(self.now),
            }
        )

    def driver_fails(self, code: int, reason: str) -> None:
        number = self.status["attempt"]["number"]
        self.report(progress={"attempt": number, "failure": failure(number, code, reason)})

    def commit(self, **changes: Any) -> None:
        run = self.status["run"]
        proof = {
            "jobUid": self.job["metadata"]["uid"],
            "run": run["number"],
            "runKey": run["runKey"],
            "indexUri": "gs://tokens/demo/index.json",
            "indexDigest": "0" * 64,
            "documents": 10,
            "tokens": 4000,
        }
        self.report(committed=proof | changes)


@dataclass(frozen=True)
class Sleeper:
    """An operator whose watches bring nothing."""

    reconciler: Reconciler
    kube: FakeKubeClient

    def reconcile(self) -> None:
        asyncio.run(self.reconciler.reconcile((NAMESPACE, NAME)))

    def reconcile_while(self, happens: Callable[[], object], *, calls: int) -> None:
        """Stop after so many calls, go on when that has happened."""

        async def reconcile() -> None:
            self.kube.freezes_before = calls
            reconcile = asyncio.ensure_future(self.reconciler.reconcile((NAMESPACE, NAME)))
            while not self.kube.is_frozen:
                assert not reconcile.done(), "it needs fewer calls"
                await asyncio.sleep(0)
            happens()
            self.kube.thaw()
            await reconcile

        asyncio.run(reconcile())


def planned(**spec: object) -> Story:
    story = Story(dict(spec))
    story.plan()
    return story


def running(**spec: object) -> Story:
    story = planned(**spec)
    story.run()
    return story


def killed_before_the_cluster(labels: dict[str, str] | None = None) -> Story:
    """The operator has written that it makes the RayJob, and was killed before it did."""
    story = Story(labels=labels)
    story.dies_before(Kind.RAY_JOB)
    with pytest.raises(Killed):
        story.plan()
    assert story.where == ("Starting", "ClusterRequested")
    return story


def failure(attempt: int, code: int, reason: str) -> dict[str, Any]:
    return {"attempt": attempt, "exitCode": code, "reason": reason, "message": f"{reason} happened", "nextStep": "mend"}


def manifest(spec: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": Kind.JOB,
        "metadata": {"name": NAME, **({"labels": labels} if labels else {})},
        "spec": {
            "source": {"uris": ["gs://corpus/*.parquet"]},
            "tokenizer": {"name": "gpt2"},
            "output": {"uri": "gs://tokens/demo"},
            **spec,
        },
    }
