"""The retry policy: classifies failures, counts them, and decides when the next try begins. Pure.

An **application** failure is caused by the worker's code or the data; `backoffLimit` consecutive ones, without a new
range between them, end a run. All others are **infrastructure** failures. A failure that a retry cannot change ends a
run at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from hashlib import sha256

from tokenization_operator.decide.status.truncate import join, shorten
from tokenization_worker.api.checkpoint import FailureReport
from tokenization_worker.api.status import FailureRecord, FailuresStatus
from tokenization_worker.api.types.times import time_text

MOST_KEPT = 5
_MOST_WORDS_KEPT = 512
_FINAL_CODES = frozenset({2, 3, 4})
_APPLICATION_CODE = 1


class Blame(Enum):
    """How a failure counts."""

    FINAL = "final"
    APPLICATION = "application"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a plan (attempt 0) or an attempt ended."""

    attempt: int
    reason: str
    message: str
    blame: Blame


def of_report(report: FailureReport, attempt: int) -> Failure:
    """The failure that one of our Pods has reported."""
    blame = Blame.INFRASTRUCTURE
    if report.exit_code in _FINAL_CODES:
        blame = Blame.FINAL
    elif report.exit_code == _APPLICATION_CODE:
        blame = Blame.APPLICATION
    message = join(report.message, f"Next: {report.next_step}") if report.next_step else report.message
    return Failure(attempt, report.reason, message, blame)


@dataclass(frozen=True, slots=True)
class Limits:
    """A job's limits: how many failures end a run, and the delays between tries."""

    application: int
    infrastructure: int
    delay_s: float
    delay_max_s: float


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The counts including this failure; `is_over`: there is no further try."""

    failures: FailuresStatus
    is_over: bool


def apply_retry_policy(
    before: FailuresStatus | None, failure: Failure, ranges_done: int, limits: Limits, now: datetime, seed: str
) -> RetryDecision:
    """Count a failure and decide whether to retry. `ranges_done`: of the run, now; `seed`: of the delay's jitter."""
    before = before or FailuresStatus()
    application, infrastructure = before.application or 0, before.infrastructure or 0
    if ranges_done > (before.ranges_completed or 0):
        application = 0
    match failure.blame:
        case Blame.APPLICATION:
            application += 1
        case Blame.INFRASTRUCTURE:
            infrastructure += 1
    is_over = failure.blame is Blame.FINAL or application > limits.application or infrastructure > limits.infrastructure
    tries = application if failure.blame is Blame.APPLICATION else infrastructure
    due = None if is_over else time_text(now + timedelta(seconds=pause_s(tries, limits, seed)))
    return RetryDecision(
        FailuresStatus(
            application=application,
            infrastructure=infrastructure,
            ranges_completed=max(ranges_done, before.ranges_completed or 0),
            next_attempt_time=due,
        ),
        is_over,
    )


def pause_s(tries: int, limits: Limits, seed: str) -> float:
    """The delay before the next try: doubled each time, up to a limit, plus up to a quarter of jitter, so that a
    thousand jobs do not return from one outage together. Equal seeds give equal delays, so a repeated decision agrees.
    """
    whole = min(limits.delay_max_s, limits.delay_s * 2 ** min(max(tries - 1, 0), 30))
    share = int.from_bytes(sha256(f"{seed}/{tries}".encode()).digest()[:4], "big") / 2**32
    return float(whole * (1 + share / 4))


def remember(records: list[FailureRecord] | None, failure: Failure, now: datetime) -> list[FailureRecord]:
    """The last failures, newest first."""
    words = shorten(failure.message, _MOST_WORDS_KEPT)
    newest = FailureRecord(attempt=failure.attempt, time=time_text(now), reason=failure.reason, message=words)
    return [newest, *(records or ())][:MOST_KEPT]
