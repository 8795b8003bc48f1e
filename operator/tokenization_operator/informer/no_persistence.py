"""Kopf's stores of what it has done with an object, for an operator that only listens: nothing is kept.

By default Kopf copies every object it hears of several times, to find out what has changed since it was last handled:
more than half of what an event costs. It remembers every object for daemons and indices (2 KB each), lists all objects
of a kind in one answer, and keeps the last event of each for five seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

PAGE = 500
"""Objects in an answer to Kopf's lists."""

IDLE_S = 0.05
"""How long what Kopf was told of an object stays in memory after it was handled. It cannot be zero: Kopf would not even
read what it is told."""


class NoDiffs(kopf.DiffBaseStorage):
    """No object differs from what it was."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Keep nothing."""


class NoProgress(kopf.ProgressStorage):
    """No handler has begun."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Keep nothing."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """There is nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Leave the object alone."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class NoMemories(ResourceMemories):
    """No object is remembered: there are no daemons, no indices and no memos."""

    async def recall(self, *arguments: Any, **known: Any) -> ResourceMemory:
        return await super().recall(*arguments, **known | {"ephemeral": True})


def keep_nothing(settings: kopf.OperatorSettings) -> None:
    """Have Kopf keep of objects what it needs while it hands them on."""
    settings.persistence.diffbase_storage = NoDiffs()
    settings.persistence.progress_storage = NoProgress()
    settings.watching.chunk_size = PAGE
    settings.queueing.idle_timeout = IDLE_S
