"""Selects the most useful of a job's logs, and its last lines. Decides; does no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tokenization_worker.cli.explain.pods import PodSummary
from tokenization_worker.messages.redact import redact

_DATE = re.compile(r"^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)Z ")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NOISE = re.compile(
    r"^\s*$|^[-=#\s]*$|cli\.py:\d+ -- |Tailing logs until the job|^\s*ray job (?:logs|status|stop) |"
    r"^\s*Query the |^\s*Request the |^\s*Next steps?$|job_manager\.py:\d+ -- Runtime env|cli_logger\.py"
)
"""What Ray's client says of its own around the driver's lines."""

_ORDER_OF_RUN = ("submitter", "head", "worker", "plan")
_ORDER_OF_PLAN = ("plan", "submitter", "head", "worker")


@dataclass(frozen=True, slots=True)
class Log:
    """`origin`: whose it is, in words."""

    origin: str
    lines: tuple[str, ...]


def order_pods(summaries: Iterable[PodSummary], *, is_planning: bool, most: int) -> list[PodSummary]:
    """The Pods whose logs are worth a summary, best first: those that ended badly before others of their role."""
    order = _ORDER_OF_PLAN if is_planning else _ORDER_OF_RUN
    begun = (summary for summary in summaries if summary.has_begun)
    newest_first = sorted(
        begun, key=lambda summary: summary.created.timestamp() if summary.created else 0.0, reverse=True
    )
    return sorted(newest_first, key=lambda summary: (order.index(summary.role), summary.is_well))[:most]


def tail(text: str, most: int) -> tuple[str, ...]:
    """The last lines that say something, without colours and secrets; a line that comes again and again once."""
    lines: list[str] = []
    for stamped in _COLOURS.sub("", text).splitlines():
        line = _DATE.sub(r"\1 ", stamped)
        if not _NOISE.search(line) and (not lines or lines[-1] != line):
            lines.append(redact(line.rstrip()))
    return tuple(lines[-most:])


def pick(logs: Iterable[Log]) -> Log | None:
    """The first that says something; those behind it are not read."""
    return next((log for log in logs if log.lines), None)
