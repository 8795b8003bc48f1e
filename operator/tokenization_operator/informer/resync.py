"""Fills the cache before anything is decided, and finds what was deleted while no watch was open.

Watches list what there is, each for itself and in any order: an operator that has begun would take for gone what it has
not been told of yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from tokenization_operator.informer.cache import Cache
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.objects.reading import Object


class Lister(Protocol):
    def list_all(
        self, kind: Kind, namespace: str | None, labels: str = "", *, only_metadata: bool = False
    ) -> AsyncIterator[Object]: ...


def labels_of(kind: Kind) -> str:
    """The selector of what a watch brings: of the kinds that others have, too, those that are made for jobs."""
    return "" if kind in (Kind.JOB, Kind.CHECKPOINT) else JOB_LABEL


async def fill(cache: Cache, cluster: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...]) -> None:
    """Put in all that there is; without `namespaces`, of all. Jobs come first: what is theirs is packed at once."""
    for kind in sorted(kinds, key=lambda kind: kind is not Kind.JOB):
        async for item in _list(cluster, kind, namespaces):
            cache.put(kind, item)


async def drop_what_is_gone(cache: Cache, cluster: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...]) -> None:
    """Drop what was deleted while no watch was open, as before the first ones: none tells it."""
    for kind in kinds:
        known = cache.uids(kind)
        there = {item["metadata"]["uid"] async for item in _list(cluster, kind, namespaces, only_metadata=True)}
        for place in known:
            if place[-1] not in there:
                cache.forget(kind, *place)


async def _list(
    cluster: Lister, kind: Kind, namespaces: tuple[str, ...], *, only_metadata: bool = False
) -> AsyncIterator[Object]:
    for namespace in namespaces or (None,):
        async for item in cluster.list_all(kind, namespace, labels_of(kind), only_metadata=only_metadata):
            yield item
