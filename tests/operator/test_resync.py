"""The operator looks at every job from time to time, whatever the watches say."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest
from fake_api import NAMESPACE
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator import handlers
from tokenization_operator.handlers import Operator, select
from tokenization_operator.kinds import PLACES, Kind
from tokenization_operator.metrics import Metrics
from tokenization_operator.names import JOB_LABEL
from tokenization_operator.settings import Settings
from tokenization_operator.workqueue import WorkQueue

DEADLINE_S = 30


def job(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1"}}


class FailsAtFirst:
    """A cluster that lists `items` of the jobs, from the third time on."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self._items = items
        self.asked = 0

    async def list_all(self, kind: Kind, namespace: str | None, labels: str = "") -> list[dict[str, Any]]:
        self.asked += 1
        if self.asked < 3:
            raise ApiException(status=503, reason="Service Unavailable")
        return list(self._items)


def test_a_list_that_fails_is_tried_again_and_ends_nothing() -> None:
    async def story() -> None:
        looked: list[str] = []
        is_compared = asyncio.Event()

        async def look(key: tuple[str, str]) -> None:
            looked.append(key[1])
            if operator.cache.jobs() == [(NAMESPACE, "there")]:
                is_compared.set()

        operator = Operator(Settings("worker:1", "2.60.0", resync_s=0.01), Metrics())
        operator.cache.put(Kind.JOB, job("there"))
        operator.cache.put(Kind.JOB, job("gone"))
        operator.queue = WorkQueue(look, lambda key, error: None)
        operator._kinds = (Kind.JOB,)
        operator._cluster = cluster = FailsAtFirst(job("there"))  # type: ignore[assignment]
        tasks = [asyncio.create_task(operator._resync()), asyncio.create_task(operator.queue.run(1))]
        await asyncio.wait_for(is_compared.wait(), DEADLINE_S)
        assert cluster.asked == 3, "compared once more, and not again"
        assert "gone" in looked, "while the list fails, all jobs are looked at as ever"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_what_goes_while_no_watch_is_open_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that begins anew, as after 410, brings what there is, and tells of nothing that is gone."""
    monkeypatch.setattr(handlers, "COMPARE_S", 0.0)

    async def story() -> None:
        is_noticed = asyncio.Event()

        async def look(key: tuple[str, str]) -> None:
            if cluster.asked == 4:  # it was compared before
                operator.cache.put(Kind.JOB, job("gone meanwhile"))
            if cluster.asked > 5 and operator.cache.jobs() == [(NAMESPACE, "there")]:
                is_noticed.set()

        operator = Operator(Settings("worker:1", "2.60.0", resync_s=0.01), Metrics())
        operator.cache.put(Kind.JOB, job("there"))
        operator.queue = WorkQueue(look, lambda key, error: None)
        operator._kinds = (Kind.JOB,)
        operator._cluster = cluster = FailsAtFirst(job("there"))  # type: ignore[assignment]
        tasks = [asyncio.create_task(operator._resync()), asyncio.create_task(operator.queue.run(1))]
        await asyncio.wait_for(is_noticed.wait(), DEADLINE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_an_operator_of_which_a_part_has_ended_ends() -> None:
    """It would answer its probes, and do nothing."""

    async def story() -> None:
        operator = Operator(Settings("worker:1", "2.60.0", resync_s=0.0), Metrics())
        operator.queue = WorkQueue(lambda key: asyncio.sleep(0), lambda key, error: None)
        operator._cluster = object()  # type: ignore[assignment]
        operator._kinds = (Kind.JOB,)
        task = asyncio.create_task(operator._resync())
        task.add_done_callback(operator._ended)
        await asyncio.wait_for(operator.stop_flag.wait(), DEADLINE_S)
        assert operator.has_failed

    asyncio.run(story())


def test_of_kinds_that_everybody_has_only_those_of_jobs_are_watched() -> None:
    settings = kopf.OperatorSettings()
    select(settings)
    for kind, (group, version, plural) in PLACES.items():
        resource = kopf.Resource(group=group, version=version, plural=plural)
        wanted = [] if kind in (Kind.JOB, Kind.CHECKPOINT) else [JOB_LABEL]
        assert settings.watching.label_selectors.collect(resource) == wanted
