"""The operator looks at every job from time to time, whatever the watches say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kopf
import pytest
from kubernetes.aio.client.exceptions import ApiException

from support.cluster.fake_api import NAMESPACE
from tokenization_operator import handlers
from tokenization_operator.handlers import Operator, select
from tokenization_operator.informer.cache import Key
from tokenization_operator.informer.no_persistence import NoMemories
from tokenization_operator.informer.work_queue import WorkQueue
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import PLACES, Kind
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.settings import Settings

DEADLINE_S = 120


def job(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1"}}


class FailsAtFirst:
    """A cluster that lists `items` of the jobs, from the third time on."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self._items = items
        self.asked = 0

    async def list_all(
        self, kind: Kind, namespace: str | None, labels: str = "", **_: bool
    ) -> AsyncIterator[dict[str, Any]]:
        self.asked += 1
        if self.asked < 3:
            raise ApiException(status=503, reason="Service Unavailable")
        for item in self._items:
            yield item


Look = Callable[[Key], Awaitable[None]]


def operator_of(cluster: object, look: Look, *jobs: dict[str, Any]) -> Operator:
    """One that knows these jobs, and has all but its watches."""
    operator = Operator(Settings("worker:1", "2.60.0", resync_s=0.01), Metrics())
    for each in jobs:
        operator.cache.put(Kind.JOB, each)
    operator.queue = WorkQueue(look, lambda key, error: None)
    operator._kinds = (Kind.JOB,)
    operator._kube = cluster  # type: ignore[assignment]
    return operator


async def resync_until(happened: asyncio.Event, operator: Operator) -> None:
    assert operator.queue is not None
    tasks = [asyncio.create_task(operator._resync()), asyncio.create_task(operator.queue.run(1))]
    tasks[0].add_done_callback(operator._ended)
    await asyncio.wait_for(happened.wait(), DEADLINE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_list_that_fails_is_tried_again_and_ends_nothing() -> None:
    async def story() -> None:
        looked: list[str] = []
        is_compared = asyncio.Event()

        async def look(key: Key) -> None:
            looked.append(key[1])
            if operator.cache.jobs() == [(NAMESPACE, "there")]:
                is_compared.set()

        cluster = FailsAtFirst(job("there"))
        operator = operator_of(cluster, look, job("there"), job("gone"))
        await resync_until(is_compared, operator)
        assert cluster.asked == 3, "compared once more, and not again"
        assert "gone" in looked, "while the list fails, all jobs are looked at as ever"
        assert not operator.has_failed

    asyncio.run(story())


def test_what_goes_while_no_watch_is_open_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that begins anew, as after 410, brings what there is, and tells of nothing that is gone."""
    monkeypatch.setattr(handlers, "COMPARE_S", 0.0)

    async def story() -> None:
        looked: list[str] = []
        is_noticed = asyncio.Event()

        async def look(key: Key) -> None:
            looked.append(key[1])
            if cluster.asked >= 3 and "gone meanwhile" not in looked:  # it was compared before
                operator.cache.put(Kind.JOB, job("gone meanwhile"))
                operator.queue.add((NAMESPACE, "gone meanwhile"))  # type: ignore[union-attr]
            elif "gone meanwhile" in looked and operator.cache.jobs() == [(NAMESPACE, "there")]:
                is_noticed.set()

        cluster = FailsAtFirst(job("there"))
        operator = operator_of(cluster, look, job("there"))
        await resync_until(is_noticed, operator)

    asyncio.run(story())


def test_an_operator_of_which_a_part_has_ended_ends() -> None:
    """It would answer its probes, and do nothing."""

    async def story() -> None:
        async def look(key: Key) -> None:
            raise AssertionError(key)

        operator = operator_of(object(), look)
        await resync_until(operator.stop_flag, operator)
        assert operator.has_failed

    asyncio.run(story())


def test_of_kinds_that_everybody_has_only_those_of_jobs_are_watched() -> None:
    settings = kopf.OperatorSettings()
    select(settings)
    for kind, (group, version, plural) in PLACES.items():
        resource = kopf.Resource(group=group, version=version, plural=plural)
        wanted = [] if kind in (Kind.JOB, Kind.CHECKPOINT) else [JOB_LABEL]
        assert settings.watching.label_selectors.collect(resource) == wanted


def test_kopf_lists_in_pages_and_drops_handled_events() -> None:
    """All at once, ten thousand jobs are a gigabyte; and an event that is handled would stay for five seconds."""
    settings = kopf.OperatorSettings()
    select(settings)
    assert settings.watching.chunk_size == 500
    assert 0 < settings.queueing.idle_timeout < 1


def test_kopf_remembers_no_object() -> None:
    memories = NoMemories()
    asyncio.run(memories.recall(kopf.RawBody(job("demo")), noticed_by_listing=True))
    assert list(memories.iter_all_memories()) == []


def test_kopf_copies_nothing_of_what_it_hears() -> None:
    class Uncopied(dict[str, Any]):
        def __deepcopy__(self, memo: object) -> None:
            raise AssertionError("an object was copied")

    settings = kopf.OperatorSettings()
    select(settings)
    body = kopf.Body(Uncopied(job("demo")))
    assert settings.persistence.diffbase_storage.build(body=body) == {}
    essence = kopf.BodyEssence(spec=Uncopied())
    assert settings.persistence.progress_storage.clear(essence=essence) is essence
    assert settings.persistence.diffbase_storage.fetch(body=body) is None
