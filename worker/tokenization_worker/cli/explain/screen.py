"""Formats a report as lines for a terminal. Decides; does no I/O.

The answer comes first and last: why it is where it is, and what to do. A screen has about 40 lines; what is left out is
counted. Text of others is escaped before it is wrapped, so that no width is wrong and no line is forged.
"""

from __future__ import annotations

import re
import textwrap
from datetime import datetime

from tokenization_worker.api.types.times import read_time, time_text
from tokenization_worker.cli.escapes import printable
from tokenization_worker.cli.explain.advice import split_step
from tokenization_worker.cli.explain.events import Fact
from tokenization_worker.cli.explain.pods import PodSummary
from tokenization_worker.cli.explain.report import Report, age, span
from tokenization_worker.messages.counts import counted

_COMMAND = re.compile("`[^`]{1,200}`")
_GLUE = "\ue000"
"""Stands for a blank at which no line may end."""

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

_LABEL = 10
_INDENT = "  "
_MOST_PODS = 6
_LINES_OF_MESSAGE = 6
_PREEMPTION = re.compile(r" (?:no new claims to deallocate, )?preemption: \d+/\d+ nodes are available: [^.]*\.")
_LINES_OF_WARNING = 2
_LINES_OF_BLOCKED = 3
_LINES_OF_FACT = 2


def draw(report: Report, width: int) -> list[str]:
    """The screen, for a terminal of so many columns."""
    return [
        *_head(report, width),
        "",
        *_events(report, width),
        "",
        *_pods(report, width),
        "",
        *_log(report, width),
        *(line for words in _not_shown(report) for line in _wrap("not shown ", _both_ends(words, width), width, 4)),
        "",
        *_wrap("next:     ", report.next_step, width, 6),
    ]


def _head(report: Report, width: int) -> list[str]:
    reason = report.reason or "not processed by the operator"
    why = "  ".join(filter(None, (report.phase, reason if reason != report.phase else "")))
    made = f"created {age(report.created, report.now)} ago, now {time_text(report.now)}"
    lines = [_cut(f"{report.namespace}/{report.name}  {why}  {made}", width)]
    if report.message:
        lines += _wrap(_INDENT, _with_spans(_own_message(report), report.now), width, _LINES_OF_MESSAGE)
    for word, text in report.facts:
        lines += _wrap(f"{word:<{_LABEL}}", text, width, _LINES_OF_FACT)
    return lines


def _own_message(report: Report) -> str:
    """Without the next step, where the end of the screen has it."""
    message, step = split_step(report.message)
    return _without_preemption(message if step[1:] in report.next_step else report.message)


def _without_preemption(text: str) -> str:
    """Without what the scheduler says of preemption: it says so of every Pod, in many words."""
    return _PREEMPTION.sub("", text)


def _with_spans(text: str, now: datetime) -> str:
    """How long it is until each moment that is still to come."""

    def add(found: re.Match[str]) -> str:
        moment = read_time(found[0])
        return found[0] if moment is None or moment <= now else f"{found[0]} (in {span(moment - now)})"

    return _TIME.sub(add, text)


def _events(report: Report, width: int) -> list[str]:
    if not report.events:
        return ["events    none (Kubernetes keeps them for an hour)"]
    legend = "; ! = warning" if any(fact.is_warning for fact in report.events) else ""
    more = f"; {report.events_left_out} left out (--json has all)" if report.events_left_out else ""
    lines = _wrap("events    ", f"of the job and what was made for it, oldest first{legend}{more}", width, 2)
    for fact in report.events:
        lines += _event(fact, report.now, report.message, width)
    return lines


def _event(fact: Fact, now: datetime, message: str, width: int) -> list[str]:
    """`message`: of the status, which is shown already."""
    times = f" x{fact.count} since {age(fact.first, now)}" if fact.count > 1 else ""
    mark = "!" if fact.is_warning else " "
    head = f"{age(fact.seen, now):>4} {mark} {fact.reason}{times}  "
    text = fact.message if fact.about.startswith("TokenizationJob ") else f"{fact.about}: {fact.message}"
    text = _without_preemption(text)
    if fact.message == " ".join(message.split()):
        text = "(see above)"
    if not fact.is_warning:
        return [_cut(f"{head}{text}", width)]
    return _wrap(head, text, width, _LINES_OF_WARNING, indent=" " * 7)


def _pods(report: Report, width: int) -> list[str]:
    if not report.pods:
        return ["pods      none"]
    shown = sorted(report.pods, key=lambda summary: (summary.is_well, summary.role))[:_MOST_PODS]
    room = max(len(summary.name) for summary in shown)
    lines = ["pods"]
    for summary in shown:
        restarts = f"  {counted(summary.restarts, 'restart')}" if summary.restarts else ""
        node = f"  on {summary.node}" if summary.node else ""
        line = (
            f"{_INDENT}{summary.name:<{room}}  {summary.role:<9}  {summary.state}  {age(summary.created, report.now)}"
        )
        lines.append(_cut(f"{line}{restarts}{node}", width))
        if summary.blocked:
            lines += _wrap("      ", _without_preemption(summary.blocked), width, _LINES_OF_BLOCKED)
        if summary.asks:
            lines += _wrap("      asks for ", summary.asks, width, _LINES_OF_FACT)
    rest = [summary for summary in report.pods if summary not in shown]
    if rest:
        lines.append(_cut(f"{_INDENT}and {_sum(rest)}", width))
    return lines


def _sum(summaries: list[PodSummary]) -> str:
    """`60 worker Running, 2 worker Pending`."""
    counts: dict[str, int] = {}
    for summary in summaries:
        counts[f"{summary.role} {summary.state}"] = counts.get(f"{summary.role} {summary.state}", 0) + 1
    return ", ".join(f"{count} more {what}" for what, count in sorted(counts.items()))


def _not_shown(report: Report) -> list[str]:
    return [*report.not_shown, *([report.unread_log] if report.log is not None and report.unread_log else [])]


def _both_ends(text: str, width: int) -> str:
    """What fills three lines at most: the end of a long text says why as often as its beginning."""
    most = 3 * (width - _LABEL) - 30
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2].rstrip()} ... {text[-(most // 2) :].lstrip()}"


def _log(report: Report, width: int) -> list[str]:
    if report.log is None and report.unread_log:
        words = f"not shown, and no driver has stored one: {report.unread_log}"
        return _wrap("log       ", _both_ends(words, width), width, 4)
    if report.log is None:
        return ["log       none: no Pod has one to show, and no driver has stored one"]
    lines = [_cut(f"{_INDENT}{line}", width) for line in report.log.lines]
    return [*_wrap("log       ", report.log.origin, width, 2), *lines]


def _cut(line: str, width: int) -> str:
    line = printable(line)
    return line if len(line) <= width else line[: width - 3] + "..."


def _wrap(head: str, text: str, width: int, most: int, indent: str = "") -> list[str]:
    """`head` and text in at most so many lines; what follows the first begins below the text.

    An address or a command in backticks stays whole, though it be longer than a line: it is to be copied.
    """
    head = printable(head)
    lines = textwrap.wrap(
        _COMMAND.sub(lambda found: found[0].replace(" ", _GLUE), printable(" ".join(text.split()))),
        width,
        initial_indent=head,
        subsequent_indent=indent or " " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    ) or [head.rstrip()]
    lines = [line.replace(_GLUE, " ") for line in lines]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: width - 4]} ..."]
