"""Times and ratios of contenders as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from contenders import Contender
from corpus import Corpus
from processes import Cost
from report import table


class Ratio(NamedTuple):
    """Speed of `first` over speed of `second`; `bar` is what is to be reached."""

    title: str
    first: str
    second: str
    bar: float | None


@dataclass(slots=True)
class Record:
    """The runs of one contender that count, in the order of the rounds."""

    contender: Contender
    engine: str = ""
    costs: list[Cost] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """MB of text a second."""
        return [self.contender.corpus.text_bytes / 1e6 / cost.seconds for cost in self.costs]


def choose_ratios(processes: int, nanogpt_bar: float) -> list[Ratio]:
    """What is to be reached, and what helps to read it."""
    return [
        Ratio("tokjob / leanest loop", "tokjob", "leanest", 0.7),
        Ratio("tokjob / leanest loop, one process each", "tokjob-1", "leanest-1", None),
        Ratio("tokjob / nanoGPT's way", "tokjob", "nanogpt", nanogpt_bar),
        Ratio("tokjob on the part / nanoGPT's way", "tokjob-part", "nanogpt", None),
        Ratio("tokjob / datatrove", "tokjob", "datatrove", None),
        Ratio("tokjob on the part / datatrove", "tokjob-part", "datatrove", None),
        Ratio(f"tokjob, {processes} processes / 1", "tokjob", "tokjob-1", 1.7 if processes == 2 else None),
        Ratio(f"leanest loop, {processes} processes / 1", "leanest", "leanest-1", None),
    ]


def report_times(records: Sequence[Record], whole: Corpus) -> str:
    """One row a contender."""
    rows = []
    for record in records:
        contender = record.contender
        seconds = [cost.seconds for cost in record.costs]
        rows.append(
            [
                contender.title + (f" (engine {record.engine})" if record.engine else ""),
                str(contender.processes),
                "whole" if contender.corpus is whole else "part",
                f"{median(seconds):.2f}",
                f"{min(seconds):.2f} to {max(seconds):.2f}",
                "not known" if contender.is_peer else f"{median(cost.cpu_seconds for cost in record.costs):.2f}",
                f"{median(record.speeds):.1f}",
            ]
        )
    return table(["who", "processes", "corpus", "s, median", "s, min to max", "CPU s", "MB of text/s"], rows)


def report_ratios(records: Sequence[Record], ratios: Sequence[Ratio]) -> str:
    """One row for each ratio whose two sides were measured: speeds divided round by round, then the median."""
    by_name = {record.contender.name: record for record in records}
    rows = []
    for ratio in ratios:
        if ratio.first not in by_name or ratio.second not in by_name:
            continue
        first, second = by_name[ratio.first], by_name[ratio.second]
        values = [a / b for a, b in zip(first.speeds, second.speeds, strict=True)]
        found = median(values)
        verdict = "" if ratio.bar is None else f"{ratio.bar:g}: " + ("reached" if found >= ratio.bar else "**missed**")
        is_same = first.contender.corpus is second.contender.corpus
        on = "same bytes" if is_same else "whole corpus / part"
        rows.append([ratio.title, on, f"{found:.2f}", f"{min(values):.2f} to {max(values):.2f}", verdict])
    return table(["ratio of speeds", "on", "median of pairs", "min to max", "to reach"], rows)
