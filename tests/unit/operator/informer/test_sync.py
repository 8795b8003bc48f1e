"""What an operator knows before it decides anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tokenization_operator.informer.cache import Cache
from tokenization_operator.informer.resync import drop_deleted, fill
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import JOB_LABEL


class Objects:
    """An API server with these objects. `asked`: kinds, namespaces and selectors."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.items = list(items)
        self.asked: list[tuple[Kind, str | None, str]] = []

    async def list_all(
        self, kind: Kind, namespace: str | None, labels: str = "", **_: bool
    ) -> AsyncIterator[dict[str, Any]]:
        self.asked.append((kind, namespace, labels))
        for item in self.items:
            if item["kind"] == kind and namespace in (None, item["metadata"]["namespace"]):
                yield item


def item(kind: Kind, name: str, namespace: str = "team") -> dict[str, Any]:
    labels = {JOB_LABEL: "demo"}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return {"kind": str(kind), "metadata": metadata}


@pytest.mark.parametrize(("namespaces", "jobs"), [((), 2), (("team",), 1)])
def test_all_that_is_watched_is_known_at_the_beginning(namespaces: tuple[str, ...], jobs: int) -> None:
    cache = Cache()
    cluster = Objects([item(Kind.JOB, "demo"), item(Kind.JOB, "other", "others"), item(Kind.POD, "pod")])
    asyncio.run(fill(cache, cluster, Kind, namespaces))
    assert len(cache.jobs()) == jobs
    assert [each["metadata"]["name"] for each in cache.children(("team", "demo"), Kind.POD)] == ["pod"]
    assert {(kind, labels) for kind, _, labels in cluster.asked} == {
        (kind, "" if kind in (Kind.JOB, Kind.CHECKPOINT) else JOB_LABEL) for kind in Kind
    }


def test_what_went_before_the_watches_began_is_dropped() -> None:
    cache = Cache()
    cluster = Objects([item(Kind.JOB, "demo"), item(Kind.RAY_JOB, "demo-r1-a1"), item(Kind.POD, "pod")])
    asyncio.run(fill(cache, cluster, Kind, ()))
    del cluster.items[1]
    cache.put(Kind.POD, item(Kind.POD, "new"))
    cluster.items.append(item(Kind.POD, "new"))
    asyncio.run(drop_deleted(cache, cluster, Kind, ()))
    assert cache.children(("team", "demo"), Kind.RAY_JOB) == []
    assert [each["metadata"]["name"] for each in cache.children(("team", "demo"), Kind.POD)] == ["new", "pod"]


def test_jobs_are_read_first_so_that_what_finished_ones_own_is_kept_packed() -> None:
    cluster = Objects([])
    asyncio.run(fill(Cache(), cluster, (Kind.POD, Kind.RAY_JOB, Kind.JOB, Kind.CHECKPOINT), ()))
    assert cluster.asked[0][0] is Kind.JOB
