"""Failed plans and attempts: whose fault, how often, and when the next try may begin. Decides; does no I/O.

An **application** failure is one that the worker's own code or the data brought about; `backoffLimit` of them in a row,
without a new range between them, end a run. Everything else is **infrastructure**. What cannot pass ends a run at once.
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
    """Who counts a failure."""

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
    """What a Pod of ours has said itself."""
    blame = Blame.INFRASTRUCTURE
    if report.exit_code in _FINAL_CODES:
        blame = Blame.FINAL
    elif report.exit_code == _APPLICATION_CODE:
        blame = Blame.APPLICATION
    message = join(report.message, f"Next: {report.next_step}") if report.next_step else report.message
    return Failure(attempt, report.reason, message, blame)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a job: how many failures end a run; and how long the pauses between tries are."""

    application: int
    infrastructure: int
    delay_s: float
    delay_max_s: float


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The counts with a failure among them; `is_over`: there will be no other try."""

    failures: FailuresStatus
    is_over: bool


def apply_retry_policy(
    before: FailuresStatus | None, failure: Failure, ranges_done: int, limits: Limits, now: datetime, seed: str
) -> RetryDecision:
    """Count a failure. `ranges_done`: of the run, now; `seed`: what the pause's random part is drawn from."""
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
    """Before the next try: twice as long each time, up to a limit, and up to a quarter more, so that a thousand jobs
    of one outage do not come back together. The same for the same seed: whoever looks again finds the same time."""
    whole = min(limits.delay_max_s, limits.delay_s * 2 ** min(max(tries - 1, 0), 30))
    share = int.from_bytes(sha256(f"{seed}/{tries}".encode()).digest()[:4], "big") / 2**32
    return float(whole * (1 + share / 4))


def remember(records: list[FailureRecord] | None, failure: Failure, now: datetime) -> list[FailureRecord]:
    """The last failures, the newest first."""
    words = shorten(failure.message, _MOST_WORDS_KEPT)
    newest = FailureRecord(attempt=failure.attempt, time=time_text(now), reason=failure.reason, message=words)
    return [newest, *(records or ())][:MOST_KEPT]
