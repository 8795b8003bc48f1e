"""Shows the progress of a training: a bar on a terminal, plain lines elsewhere, JSON lines for machines."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, short_bytes, short_count, short_time
from tokenization_worker.cli.pace import Pace
from tokenization_worker.cli.progress import (
    BAR_WIDTH,
    DRAW_INTERVAL_S,
    PLAIN_INTERVAL_S,
    Display,
    JsonDisplay,
    describe,
    share_line,
)
from tokenization_worker.cli.run_progress import Column, fit
from tokenization_worker.cli.training_report import report_lines
from tokenization_worker.events import (
    Counted,
    CountsMerged,
    Event,
    HoldoutMeasured,
    MergesMade,
    Preparing,
    Reported,
    TrainingFinished,
    TrainingModel,
    TrainingPlanned,
)
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted_sizes
from tokenization_worker.output.training_report import parse_report

if TYPE_CHECKING:
    from rich.progress import TaskID

_LAST_SHOWN = 20


def make_train_display(*, as_json: bool) -> Display:
    """The display that fits where the output goes."""
    if as_json:
        return JsonDisplay()
    return _TerminalDisplay() if sys.stdout.isatty() else _PlainDisplay()


Advance = Counted | MergesMade | HoldoutMeasured
"""What moves the bar; any other event is a fact."""


class _Progress:
    """The words of a bar, or of a line, from the events that come."""

    def __init__(self) -> None:
        self.name = "count"
        self.done = 0
        self.total = 1
        self.columns: tuple[Column, ...] = ()
        self._pace = Pace()

    def take(self, event: Advance, elapsed_s: float) -> None:
        if isinstance(event, Counted):
            self._pace.take(elapsed_s, event.source_bytes)
            self.name, self.done, self.total = "count", event.bytes_done, max(1, event.bytes_total)
            self.columns = (
                Column(1, short_bytes(event.source_bytes)),
                Column(0, f"{short_bytes(self._pace.per_second())}/s"),
                Column(2, f"{event.ranges_done:,} of {counted(event.ranges, 'range')}"),
                Column(3, f"{short_count(event.pieces)} pieces, {short_count(event.distinct)} or more different"),
            )
            if event.ranges_done == event.ranges:
                self.columns = (Column(0, "merging the counts"),)
        elif isinstance(event, HoldoutMeasured):
            self.name, self.done, self.total = "report", event.bytes_done, max(1, event.bytes_total)
            done = f"{short_bytes(event.bytes_done)} of {short_bytes(event.bytes_total)} held out"
            self.columns = (Column(0, f"{done}, by {event.file}"),)
        else:
            self.name, self.done, self.total = "train", event.merges_done, max(1, event.merges)
            last = event.last if len(event.last) <= _LAST_SHOWN else f"{event.last[:_LAST_SHOWN]}..."
            self.columns = (
                Column(0, f"{event.merges_done:,} of {event.merges:,} merges"),
                Column(1, f"the last: {printable(repr(last))} {event.last_count:,} times"),
            )


class _PlainDisplay:
    """Lines for logs: each fact once, progress every ten seconds."""

    is_drawing = False

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._progress = _Progress()

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if not isinstance(event, Advance):
            say(describe_training(event, now - self._started), flush=True)
            return
        self._progress.take(event, now - self._started)
        if now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            say(f"{self._progress.name:<10} {fit(self._progress.columns, sys.maxsize)}", flush=True)

    def close(self) -> None:
        """Nothing is held."""


class _TerminalDisplay:
    """One bar below the facts: of the counting, then of the merges."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.table import Column as TableColumn

        self.is_drawing = False
        self._started = time.monotonic()
        self._drawn = 0.0
        self._progress = _Progress()
        self._console = Console(highlight=False)
        self._bar_column = BarColumn(bar_width=BAR_WIDTH, finished_style="bar.complete")
        self._bars = Bars(
            TextColumn("{task.description:<10}", table_column=TableColumn(no_wrap=True)),
            self._bar_column,
            TextColumn("{task.fields[text]}", table_column=TableColumn(no_wrap=True, overflow="crop"), markup=False),
            console=self._console,
            auto_refresh=False,  # rich's thread and a line printed meanwhile may move the cursor up twice
        )
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Advance):
            self._progress.take(event, now - self._started)
            self._draw(now)
            return
        if isinstance(event, Reported | TrainingFinished):
            self.close()
        line = printable(describe_training(event, now - self._started), "\n\t")
        self._console.print(line, markup=False, soft_wrap=True)

    def _draw(self, now: float) -> None:
        if self._bar is None:
            self.is_drawing = True
            self._bars.start()
            self._bar = self._bars.add_task("count", text="")
        progress = self._progress
        self._bar_column.bar_width, room = share_line(self._console.width)
        text = fit(progress.columns, room)
        self._bars.update(
            self._bar, description=progress.name, total=progress.total, completed=progress.done, text=text
        )
        if now - self._drawn >= DRAW_INTERVAL_S:
            self._drawn = now
            self._bars.refresh()

    def close(self) -> None:
        if self.is_drawing:
            self._bars.refresh()
            self._bars.stop()
            self.is_drawing = False


def describe_training(event: Event, elapsed_s: float) -> str:
    """A fact in one line, or a few for the end."""
    match event:
        case Preparing():
            more = f" and {counted(len(event.patterns) - 1, 'more pattern')}" if len(event.patterns) > 1 else ""
            return printable(f"prepare    listing {event.patterns[0]}{more}")
        case TrainingPlanned():
            how = "" if event.is_compiled else " (by the library: slow)"
            done = f"  {event.ranges_done:,} counted before" if event.ranges_done else ""
            return (
                f"plan       {counted(event.files, 'file')}  {short_bytes(event.stored_bytes)} stored  "
                f"{counted(event.ranges, 'range')}{done}  pattern {printable(event.pattern)}{how}  "
                f"{counted_sizes(event.vocab_sizes)}"
            )
        case CountsMerged():
            return (
                f"counts     {counted(event.pieces, 'piece')}, {event.distinct:,} different ones, in "
                f"{short_bytes(event.text_bytes)} of text  {event.digest[:16]}"
            )
        case TrainingModel():
            return f"train      {event.algorithm} of {event.vocab_size:,} tokens, by the package sentencepiece"
        case Reported():
            return "\n".join(["", *report_lines(parse_report(event.report)), ""])
        case TrainingFinished():
            return _describe_end(event, elapsed_s)
        case _:
            return describe(event, elapsed_s)


def _describe_end(event: TrainingFinished, elapsed_s: float) -> str:
    word = "complete" if event.already else "done"
    left_out = f" + {event.documents_left_out:,} left out" if event.documents_left_out else ""
    lines = [
        f"{word:<10} {event.documents_read:,} read = {event.documents_counted:,} counted + "
        f"{event.documents_held_out:,} held out + {event.documents_quarantined:,} unusable{left_out}  "
        f"{short_time(elapsed_s)}"
    ]
    if event.already:
        lines[0] += "   (nothing to do: this training was finished before)"
    if event.files_dropped:
        lines.append(f"           {counted(event.files_dropped, 'corrupt file')} left out")
    uri = printable(event.uri)
    if event.is_counts_only:
        lines.append(f"           {uri}/counts.npz   the same command without --until counts trains from it")
        return "\n".join(lines)
    is_one = len(event.tokenizers) == 1
    lines.append(f"           For a job{'' if is_one else ', one of'}:")
    for made in event.tokenizers:
        lines += [
            f"# {made.vocab_size:,} tokens",
            "tokenizer:",
            f"  uri: {_quoted(made.uri)}",
            f"  fingerprint: {made.fingerprint}",
            f"  delimiter: {{token: {_quoted(event.delimiter)}}}",
        ]
    flags = ("--tokenizer", event.tokenizers[-1].uri, "--tokenizer.delimiter.token", event.delimiter)
    lines.append(f"           or: {printable(tokjob('run', '--source', 'FILES', '--output', 'FOLDER', *flags))}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A text as YAML in double quotes."""
    import json

    return json.dumps(text)
