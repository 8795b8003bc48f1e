"""The numbers of a status as words, for the columns of kubectl. Decides; does no I/O."""

from __future__ import annotations

from tokenization_worker.api.status import DisplayStatus, PlanStatus, ProgressStatus, WorkersStatus

_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_TIMES = ((86_400, "d"), (3_600, "h"), (60, "m"))


def short_count(number: float) -> str:
    """4,200,000,000 is 4.2B."""
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def short_time(seconds: float) -> str:
    """The largest unit that is there: 500 s is 8m."""
    for size, unit in _TIMES:
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def make_display(
    plan: PlanStatus | None, progress: ProgressStatus | None, workers: WorkersStatus | None
) -> DisplayStatus | None:
    """What the columns say; None before there is anything to say."""
    if progress is None and workers is None:
        return None
    rate = eta = words = None
    if progress is not None and progress.percent is not None:
        tokens = short_count(progress.tokens or 0)
        expected = f"/~{short_count(plan.estimated_tokens)}" if plan and plan.estimated_tokens else ""
        words = f"{progress.percent}% {tokens}{'' if progress.percent == 100 else expected} tok"
        if progress.percent < 100 and progress.tokens_per_second is not None:
            rate = f"{short_count(progress.tokens_per_second)}/s"
            eta = short_time(progress.eta_seconds) if progress.eta_seconds is not None else None
    there = None
    if workers is not None and workers.desired is not None:
        there = f"{workers.ready or 0}/{workers.desired}"
    return DisplayStatus(progress=words, rate=rate, eta=eta, workers=there)
