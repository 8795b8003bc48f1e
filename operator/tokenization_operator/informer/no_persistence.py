"""Disables Kopf's stores of handler state, for an operator that only listens to events.

By default Kopf copies every object several times to find what has changed: more than half of the cost of an event. It
remembers every object for daemons and indices (2 KB each), lists all objects of a kind in one answer, and keeps the
last event of each for five seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

PAGE = 500
"""Page size of Kopf's lists."""

IDLE_S = 0.05
"""How long Kopf keeps an event after it is handled. With zero, Kopf would not even read events."""


class NoDiffs(kopf.DiffBaseStorage):
    """Reports no difference for any object."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Reports no handler as started."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """There is nothing to remove."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Leave the object alone."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class NoMemories(ResourceMemories):
    """Remembers no object: there are no daemons, indices or memos."""

    async def recall(self, *arguments: Any, **known: Any) -> ResourceMemory:
        return await super().recall(*arguments, **known | {"ephemeral": True})


def keep_nothing(settings: kopf.OperatorSettings) -> None:
    """Configure Kopf to keep only what it needs while it delivers an event."""
    settings.persistence.diffbase_storage = NoDiffs()
    settings.persistence.progress_storage = NoProgress()
    settings.watching.chunk_size = PAGE
    settings.queueing.idle_timeout = IDLE_S
