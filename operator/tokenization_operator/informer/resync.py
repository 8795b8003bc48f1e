"""Fills the cache before anything is decided, and finds what was deleted while no watch was open.

Watches list what there is, each for itself and in any order: an operator that has begun would take for gone what it has
not been told of yet.
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
"""By the path of a list: the version that it was read in."""


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
    """The selector of what a watch brings: of the kinds that others have, too, those that are made for jobs."""
    return "" if kind in (Kind.JOB, Kind.CHECKPOINT) else JOB_LABEL


async def fill(
    cache: Cache, lister: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...], listed: Versions | None = None
) -> None:
    """Put in all that there is; without `namespaces`, of all. Jobs come first: what is theirs is packed at once.

    `listed` is given the version of each list, from which its watch misses nothing.
    """
    versions: Versions = {} if listed is None else listed
    for kind in sorted(kinds, key=lambda kind: kind is not Kind.JOB):
        for namespace in namespaces or (None,):
            note = partial(versions.__setitem__, list_path(kind, namespace))
            async for item in lister.list_all(kind, namespace, labels_of(kind), on_version=note):
                cache.put(kind, item)


async def drop_deleted(cache: Cache, lister: Lister, kinds: Iterable[Kind], namespaces: tuple[str, ...]) -> None:
    """Drop what was deleted while no watch was open, as before the first ones: none tells it."""
    for kind in kinds:
        known = cache.uids(kind)
        there = {
            item["metadata"]["uid"]
            for namespace in namespaces or (None,)
            async for item in lister.list_all(kind, namespace, labels_of(kind), only_metadata=True)
        }
        for place in known:
            if place[-1] not in there:
                cache.forget(kind, *place)
