"""Kopf's stores of what it has done with an object, for an operator that only listens: nothing is kept.

By default Kopf copies every object it hears of several times, to find out what has changed since it was last handled:
more than half of what an event costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kopf


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
