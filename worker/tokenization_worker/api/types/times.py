"""Times as Kubernetes writes them: UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str | None) -> datetime | None:
    """None for what is absent or no time."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def seconds_since(text: str | None, now: datetime) -> float | None:
    moment = read_time(text)
    return None if moment is None else (now - moment).total_seconds()


def last_report_seen(seen: str | None, last_range: str | None, last_report: str | None) -> datetime | None:
    """When the last report of a driver came in, by the clock of who reads it; None where that cannot be said.

    `seen`: when the operator saw its last range. The other two are the driver's own times, of a clock that may be hours
    off: only what lies between them counts.
    """
    moment, done, reported = read_time(seen), read_time(last_range), read_time(last_report)
    if moment is None or done is None or reported is None:
        return None
    return moment + max(reported - done, timedelta())
