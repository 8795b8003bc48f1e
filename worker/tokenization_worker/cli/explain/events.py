"""The events of a job and of all that was made for it, in order, each fact once. Decides; does no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tokenization_worker.api.types.times import read_time
from tokenization_worker.messages.redact import redact

Object = dict[str, Any]

_JOB_KIND = "TokenizationJob"
_LEAST_OF_NAME = 5
_NOISE = frozenset(
    {
        *("Scheduled", "Pulling", "Pulled", "Created", "Started", "SuccessfulCreate", "Killing", "Completed"),
        *("CreatedService", "CreatedHeadPod", "CreatedWorkerPod", "CreatedRayCluster", "CreatedRayJobSubmitter"),
    }
)
"""What is said of every job on its way: shown only where there is room."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Events that say the same. `about`: the object, or how many of its kind; `seen`: the last time."""

    seen: datetime
    first: datetime
    count: int
    is_warning: bool
    about: str
    reason: str
    message: str


def is_of_job(event: Object, name: str, uid: str, created: datetime | None) -> bool:
    """Whether an event is about this very job or a child of it; a deleted namesake's are not."""
    about = event.get("involvedObject") or {}
    kind, found = about.get("kind"), about.get("name") or ""
    if kind == _JOB_KIND:
        return found == name and about.get("uid") in (uid, None, "")
    if not _children(name).match(found):
        return False
    last = last_time(event)
    return created is None or last is None or last >= created


def _children(job: str) -> re.Pattern[str]:
    """Names of checkpoints, plan Jobs, RayJobs, and what is made for those. `demo-r1-r1-a1` is none of `demo`."""
    return re.compile(rf"{re.escape(job)}-r\d+(?:$|-[ap]\d+(?!-r\d+-[ap]\d)(?:$|-))")


def last_time(event: Object) -> datetime | None:
    """When it was seen last."""
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((moment for text in (*times, metadata.get("creationTimestamp")) if (moment := read_time(text))), None)


def merge_events(events: Iterable[Object], most: int) -> tuple[list[Fact], int]:
    """At most so many facts, the oldest first, and how many were left out: first what every Pod says, then the oldest.

    Warnings and what the operator says of the job stay longest.
    """
    groups: dict[tuple[str, str, str], list[tuple[datetime, Object]]] = {}
    for event in events:
        moment = last_time(event)
        if moment is not None:
            groups.setdefault(_sameness(event), []).append((moment, event))
    facts = sorted((_fact(each) for each in groups.values()), key=lambda fact: fact.seen)
    kept = facts
    if len(kept) > most:
        kept = [fact for fact in kept if fact.is_warning or fact.reason not in _NOISE]
    return kept[-most:] if most else [], len(facts) - len(kept[-most:] if most else [])


def _sameness(event: Object) -> tuple[str, str, str]:
    about = event.get("involvedObject") or {}
    return str(about.get("kind")), str(event.get("reason") or ""), _without_names(event)


def _without_names(event: Object) -> str:
    """The message without the name of its object: many Pods say the same."""
    about = event.get("involvedObject") or {}
    text, name = str(event.get("message") or ""), str(about.get("name") or "")
    return text.replace(name, "*") if len(name) >= _LEAST_OF_NAME else text


def _fact(group: list[tuple[datetime, Object]]) -> Fact:
    group.sort(key=lambda each: each[0])
    moment, last = group[-1]
    about = last.get("involvedObject") or {}
    names = {str((event.get("involvedObject") or {}).get("name")) for _, event in group}
    kind = str(about.get("kind") or "object")
    counts = (event.get("count") or (event.get("series") or {}).get("count") or 1 for _, event in group)
    firsts = (read_time(event.get("firstTimestamp")) or found for found, event in group)
    return Fact(
        seen=moment,
        first=min(firsts),
        count=sum(counts),
        is_warning=last.get("type") == "Warning",
        about=f"{len(names)} {kind}s" if len(names) > 1 else f"{kind} {next(iter(names))}",
        reason=str(last.get("reason") or ""),
        message=redact(" ".join((_without_names(last) if len(names) > 1 else str(last.get("message") or "")).split())),
    )
