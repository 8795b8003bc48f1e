"""Schedules reconciles that no watch triggers: at the start and periodically. Pure.

A reconcile costs 2 ms, and there may be thousands of finished jobs. So a job at rest is reconciled when something of it
is due, which the work queue remembers, and once in `ROUNDS` rounds in any case.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import datetime

from tokenization_operator.decide.finished import seconds_until_due
from tokenization_operator.informer.cache import Cache, Key
from tokenization_operator.objects.kinds import Kind

ROUNDS = 60
"""An hour, by default."""

OVERDUE_PER_S = 20.0
"""Rate at the start for jobs at rest with something due, for example after an hour without an operator: each needs two
or three requests, and running jobs come first."""


def initial_reconciles(cache: Cache, retention_s: float, now: datetime) -> Iterator[tuple[Key, float]]:
    """The jobs that a new operator must reconcile, each with the seconds it may wait."""
    overdue = 0
    for key in cache.jobs():
        job = cache.get(Kind.JOB, *key)
        if job is None or not cache.is_at_rest(key):
            yield key, 0.0
            continue
        due_s = seconds_until_due(
            job, cache.children(key, Kind.PLAN_JOB), cache.children(key, Kind.RAY_JOB), retention_s, now
        )
        if due_s is not None:
            yield key, max(due_s, overdue / OVERDUE_PER_S)
            overdue += not due_s


def due_in_round(cache: Cache, number: int) -> list[Key]:
    """The jobs to reconcile in this round."""
    return [key for key in cache.jobs() if not cache.is_at_rest(key) or _round_of(key) == number % ROUNDS]


def _round_of(key: Key) -> int:
    return zlib.crc32("/".join(key).encode()) % ROUNDS
