"""Formats the numbers of a status, for messages and for kubectl's printer columns. Pure."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from tokenization_worker.api.checkpoint import MOST_REPORT_INTERVAL_S
from tokenization_worker.api.status import DisplayStatus, JobStatus, Phase, PlanStatus, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.times import last_report_seen, read_time
from tokenization_worker.messages.counts import counted

_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_TIMES = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SILENT_S = 3 * MOST_REPORT_INTERVAL_S
"""After this time a rate is stale: a driver reports at least every `MOST_REPORT_INTERVAL_S`."""


def short_count(number: float) -> str:
    """4,200,000,000 is 4.2B."""
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def short_time(seconds: float) -> str:
    """In the largest unit: 500 s is 8m."""
    for size, unit in _TIMES:
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return "0s"


def duration_words(seconds: float) -> str:
    """In the two largest units: 1,025 s is 17m5s."""
    rest = int(seconds)
    for (size, unit), (below, unit_below) in pairwise(_TIMES):
        if rest >= size:
            more = rest % size // below
            return f"{rest // size}{unit}" + (f"{more}{unit_below}" if more else "")
    return f"{rest}s"


def part_of(done: int, total: int, noun: str) -> str:
    """`3 of 4 ranges`, `0 of 1 range`."""
    return f"{done:,} of {counted(total, noun)}"


def stage_words(progress: ProgressStatus | None) -> str:
    """How far the present stage is: `3 of 4 ranges`, `12 of 40 windows scattered`, `3 of 7 shards built`."""
    if progress is None:
        return part_of(0, 0, "range")
    if progress.stage == "Scatter" and progress.windows_total:
        return f"{part_of(progress.windows_scattered or 0, progress.windows_total, 'window')} scattered"
    if progress.stage in ("Build", "Finish") and progress.shards_total:
        return f"{part_of(progress.shards_built or 0, progress.shards_total, 'shard')} built"
    return part_of(progress.ranges_completed or 0, progress.ranges_total or 0, "range")


def ready_words(workers: WorkersStatus | None) -> str:
    """`58/64 workers are ready`; empty if the number wanted is unknown."""
    if workers is None or workers.desired is None:
        return ""
    return f"{share_of_workers(workers)} {'is' if workers.desired == 1 else 'are'} ready"


def share_of_workers(workers: WorkersStatus) -> str:
    """`58/64 workers`, `1/1 worker`."""
    return f"{workers.ready or 0}/{workers.desired} {'worker' if workers.desired == 1 else 'workers'}"


def plan_words(plan: PlanStatus) -> str:
    """`21 files, about 10.1B tokens, about 4.9M rows (98.6% text), about 8 min on 16 workers`, as far as known."""
    words = [counted(plan.files or 0, "file")]
    if plan.estimated_tokens is not None:
        words.append(
            f"about {short_count(plan.estimated_tokens)} {'token' if plan.estimated_tokens == 1 else 'tokens'}"
        )
    if plan.estimated_rows is not None:
        share = f" ({plan.estimated_utilization} text)" if plan.estimated_utilization else ""
        words.append(f"about {short_count(plan.estimated_rows)} rows{share}")
    if plan.estimated_seconds:  # 0 means less than a second: not shown
        where = f" on {counted(plan.workers, 'worker')}" if plan.workers else ""
        words.append(f"about {_round_time(plan.estimated_seconds)}{where}")
    if plan.estimated_cost is not None:
        words.append(f"about {plan.estimated_cost}")
    return ", ".join(words)


def _round_time(seconds: int) -> str:
    """An estimate is accurate to about a tenth."""
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:.0f} h"


def make_display(status: JobStatus, now: datetime) -> DisplayStatus | None:
    """The printer columns; None while all are empty."""
    progress, workers, duration = status.progress, status.workers, _duration(status)
    if progress is None and workers is None and duration is None:
        return None
    rate = eta = words = None
    if progress is not None and progress.percent is not None:
        words = _progress_words(status.plan, progress)
        if status.phase is Phase.RUNNING and _is_moving(status, progress, now):
            if progress.tokens_per_second:
                rate = f"{short_count(progress.tokens_per_second)}/s"
            eta = short_time(progress.eta_seconds) if progress.eta_seconds is not None else None
    ready = None
    if workers is not None and workers.desired is not None:
        ready = f"{workers.ready or 0}/{workers.desired}"
    return DisplayStatus(progress=words, rate=rate, eta=eta, workers=ready, duration=duration)


def _progress_words(plan: PlanStatus | None, progress: ProgressStatus) -> str:
    tokens = short_count(progress.tokens or 0)
    expected = f"/~{short_count(plan.estimated_tokens)}" if plan and plan.estimated_tokens else ""
    return f"{progress.percent}% {tokens}{'' if progress.percent == 100 else expected} tok"


def _is_moving(status: JobStatus, progress: ProgressStatus, now: datetime) -> bool:
    """Whether the rates are current. A driver that does not report times, or has no range yet, is trusted."""
    is_reading = bool(progress.tokens_per_second)
    if progress.percent == 100 or not (is_reading or progress.windows_total):  # a shuffle reads no source at its end
        return False
    seen = status.attempt.progress_time if status.attempt else None
    reported = last_report_seen(seen, progress.last_range_time, progress.last_checkpoint_time)
    return reported is None or (now - reported).total_seconds() <= _SILENT_S


def _duration(status: JobStatus) -> str | None:
    began, ended = read_time(status.start_time), read_time(status.completion_time)
    return None if began is None or ended is None else duration_words((ended - began).total_seconds())
