"""Times as Kubernetes writes them: UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


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
