"""Fills the cache before any decision, and finds objects that were deleted while no watch was open.

Each watch lists its kind by itself and in any order: an operator that started before the cache is full would take
objects for deleted that it has not yet received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Protocol

from tokenization_operator.informer.cache import Cache
from tokenization_operator.objects.kinds import Kind, list_path
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.objects.reading import Object

Versions = dict[str, str]
"""The version of each list, by its path."""


class Lister(Protocol):
    def list_all(
        self,
        kind: Kind,
        namespace: str | None,
        labels: str = "",
        *,
        only_metadata: bool = False,
        on_version: Callable[[str], None] = ...,
    ) -> AsyncIterator[Object]: ...


def labels_of(kind: Kind) -> str:
    """The label selector of a watch: kinds that others also use are restricted to objects made for jobs."""
    return "" if kind in (Kind.JOB, Kind.CHECKPOINT) else JOB_LABEL


async def fill(
    cache: Cache, lister: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...], listed: Versions | None = None
) -> None:
    """Put in all existing objects, of `namespaces` or of all. Jobs come first, so that objects of jobs at rest are
    packed at once.

    `listed` receives the version of each list: a watch from there misses no change.
    """
    versions: Versions = {} if listed is None else listed
    for kind in sorted(kinds, key=lambda kind: kind is not Kind.JOB):
        for namespace in namespaces or (None,):
            note = partial(versions.__setitem__, list_path(kind, namespace))
            async for item in lister.list_all(kind, namespace, labels_of(kind), on_version=note):
                cache.put(kind, item)


async def drop_deleted(cache: Cache, lister: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...]) -> None:
    """Drop objects that were deleted while no watch was open, for example before the first one."""
    for kind in kinds:
        known = cache.uids(kind)
        existing = {
            item["metadata"]["uid"]
            for namespace in namespaces or (None,)
            async for item in lister.list_all(kind, namespace, labels_of(kind), only_metadata=True)
        }
        for place in known:
            if place[-1] not in existing:
                cache.forget(kind, *place)
