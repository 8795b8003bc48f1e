"""Lists Warning events about failed creations, per namespace.

One list per namespace serves all its jobs for ten seconds. Namespaces do not wait for each other, and unused lists are
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tokenization_operator.kube.paging import Ask, pages
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.types.times import read_time

_CREATE_FAILED = frozenset(
    {
        "FailedCreate",
        "FailedToCreateHeadPod",
        "FailedToCreateRayCluster",
        "FailedToCreateRayJobSubmitter",
        "FailedToCreateService",
        "FailedToCreateWorkerPod",
    }
)
_FREQUENT = ("BackOff", "Failed", "FailedMount", "FailedScheduling", "Unhealthy")
"""Frequent reasons, which the API server filters out. A field selector cannot name several wanted reasons."""

SELECTOR = ",".join(("type=Warning", *(f"reason!={reason}" for reason in _FREQUENT)))

_REUSE_S = 10.0
_KEPT_S = 60.0
_PAGE = 500
_MOST_PAGES = 20
"""10,000 events; Kubernetes drops events after an hour."""


@dataclass(frozen=True, slots=True)
class CreateWarning:
    """The message about an object with this name, and its last time."""

    name: str
    message: str
    time: datetime


@dataclass(frozen=True, slots=True)
class _List:
    asked_at: float
    task: asyncio.Task[tuple[CreateWarning, ...]]


class WarningLists:
    """`list_events(namespace, selector)` returns a function that requests pages of a namespace's events."""

    def __init__(self, list_events: Callable[[str, str], Ask], clock: Callable[[], float]) -> None:
        self._list_events = list_events
        self._clock = clock
        self._lists: dict[str, _List] = {}

    def __len__(self) -> int:
        return len(self._lists)

    async def find(self, namespace: str, names: frozenset[str], since: datetime) -> tuple[str, ...]:
        """Messages since then about objects with these names: the last of each object, newest first."""
        found = await self._of(namespace)
        return newest_messages(each for each in found if each.name in names and each.time >= since)

    async def _of(self, namespace: str) -> tuple[CreateWarning, ...]:
        now = self._clock()
        known = self._lists.get(namespace)
        if known is None or (known.task.done() and (now - known.asked_at > _REUSE_S or _has_failed(known.task))):
            kept = {name: each for name, each in self._lists.items() if now - each.asked_at <= _KEPT_S}
            known = _List(now, asyncio.create_task(self._list(namespace)))
            self._lists = kept | {namespace: known}
        return await asyncio.shield(known.task)  # other jobs await the same list

    async def _list(self, namespace: str) -> tuple[CreateWarning, ...]:
        return tuple([each async for each in self._read(namespace)])

    async def _read(self, namespace: str) -> AsyncIterator[CreateWarning]:
        left = _MOST_PAGES
        async for page in pages(self._list_events(namespace, SELECTOR), _PAGE):
            for event in page:
                if (warning := read_warning(event)) is not None:
                    yield warning
            left -= 1
            if not left:
                return


def newest_messages(warning: Iterable[CreateWarning]) -> tuple[str, ...]:
    """The last message of each object, newest first: earlier ones no longer hold."""
    newest_first = sorted(warning, key=lambda each: each.time, reverse=True)
    last: dict[str, datetime] = {}
    for each in newest_first:
        last.setdefault(each.name, each.time)
    return tuple(dict.fromkeys(each.message for each in newest_first if each.time == last[each.name]))


def read_warning(event: Object) -> CreateWarning | None:
    """None for an event that is not about a failed creation."""
    moment = time_of(event)
    if event.get("reason") not in _CREATE_FAILED or not event.get("message") or moment is None:
        return None
    return CreateWarning(event["involvedObject"].get("name", ""), event["message"], moment)


def time_of(event: Object) -> datetime | None:
    """When the event last occurred. Newer clients fill `series` or `eventTime` and leave the other fields null."""
    series: dict[str, Any] = event.get("series") or {}
    texts = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return read_time(next((text for text in texts if text), event["metadata"].get("creationTimestamp")))


def _has_failed(task: asyncio.Task[tuple[CreateWarning, ...]]) -> bool:
    return task.cancelled() or task.exception() is not None
