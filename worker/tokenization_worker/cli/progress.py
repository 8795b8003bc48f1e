"""Shows the progress of a run: bars on a terminal, plain lines elsewhere, JSON lines for machines.

A display is a watcher of `events`; it owns standard output while the run lasts.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from contextlib import ExitStack, redirect_stdout
from io import BufferedWriter, RawIOBase
from typing import TYPE_CHECKING, BinaryIO, Protocol

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, estimated, share_of_bytes, short_bytes, short_share, short_time
from tokenization_worker.cli.run_progress import Column, RunProgress, fit
from tokenization_worker.events import (
    Advanced,
    Checking,
    CheckingEngine,
    Committing,
    Event,
    Finished,
    GroupCounts,
    GroupPlan,
    Planned,
    Preparing,
    Progress,
    RecordingReference,
    Resumed,
    StartingRay,
    WaitingForWorkers,
    Warned,
)
from tokenization_worker.messages.commands import tokjob

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_INTERVAL_S = 10.0
DRAW_INTERVAL_S = 0.1

BAR_WIDTH = 23
NARROW_BAR_WIDTH = 20
ROOMY = 90
"""Columns from which the wider bar leaves room for all that is said."""

LABEL_WIDTH = 11


class Display(Protocol):
    """Shows events until it is closed. `is_drawing`: bars are on the terminal, and a signal handler must not write."""

    is_drawing: bool

    def __call__(self, event: Event) -> None: ...
    def close(self) -> None: ...


def make_display(*, as_json: bool) -> Display:
    """The display that fits where the output goes."""
    if as_json:
        return JsonDisplay()
    return TerminalDisplay() if sys.stdout.isatty() else PlainDisplay()


class JsonDisplay:
    """One JSON object a line for every event; receipts of finished tasks are part of `progress`.

    Whatever a library prints meanwhile goes to standard error: machines read standard output.
    """

    is_drawing = False

    def __init__(self) -> None:
        self._is_ours = ExitStack()
        stream: BinaryIO | RawIOBase = sys.stdout.buffer
        if isinstance(stream, RawIOBase):  # PYTHONUNBUFFERED: it takes a part of a line when a signal comes
            stream = BufferedWriter(stream)
            self._is_ours.callback(stream.detach)
        self._events = stream
        self._is_ours.enter_context(redirect_stdout(sys.stderr))

    def __call__(self, event: Event) -> None:
        line = {"event": type(event).__name__.lower(), **dataclasses.asdict(event)}
        if isinstance(event, Progress) and event.receipt is not None:
            line["receipt"] = event.receipt.to_dict()
        self._events.write(orjson.dumps(line) + b"\n")
        self._events.flush()

    def close(self) -> None:
        self._is_ours.close()


class PlainDisplay:
    """Lines for logs: each fact once, progress every ten seconds."""

    is_drawing = False

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._progress = RunProgress()

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if not isinstance(event, Progress | Advanced):
            self._print(describe(event, now - self._started))
            return
        self._progress.take(event, now - self._started)
        if now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            columns = self._progress.columns(now - self._started)
            scatter = f"  scatter {self._progress.windows_text()}" if self._progress.is_shuffled else ""
            self._print(f"tokenize   {fit(columns, 200)}{scatter}  build {self._progress.shards_text()}")

    def _print(self, text: str) -> None:
        say(text, flush=True)

    def close(self) -> None:
        """Nothing is held."""


class TerminalDisplay:
    """Two bars, tokenize and build, below the facts; of a shuffle a third one between them, scatter."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.table import Column as TableColumn

        self._started = time.monotonic()
        self._progress = RunProgress()
        self.is_drawing = False
        self._console = Console(highlight=False)
        self._bar = BarColumn(bar_width=BAR_WIDTH, finished_style="bar.complete")
        self._bars = Bars(
            TextColumn("{task.description:<10}", table_column=TableColumn(no_wrap=True)),
            self._bar,
            TextColumn("{task.fields[text]}", table_column=TableColumn(no_wrap=True, overflow="crop")),
            console=self._console,
            transient=False,
            auto_refresh=False,  # rich's thread and a line printed meanwhile may move the cursor up twice
        )
        self._drawn = 0.0
        self._tokenize: TaskID | None = None
        self._scatter: TaskID | None = None
        self._build: TaskID | None = None

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Progress | Advanced):
            self._progress.take(event, now - self._started)
            self._draw(now, "")
        elif isinstance(event, Committing) and self.is_drawing:
            self._draw(now, "checking the totals")
        elif not (isinstance(event, WaitingForWorkers) and self.is_drawing):  # the bars say so
            if isinstance(event, Finished):
                self.close()
            line = printable(describe(event, now - self._started), "\n\t")
            self._console.print(line, markup=False, soft_wrap=True)

    def _draw(self, now: float, what: str) -> None:
        if self._tokenize is None or self._build is None:
            self.is_drawing = True
            self._bars.start()
            self._tokenize = self._bars.add_task("tokenize", text="")
            if self._progress.is_shuffled:
                self._scatter = self._bars.add_task("scatter", text="")
            self._build = self._bars.add_task("build", text="")
        progress = self._progress
        self._bar.bar_width, room = share_line(self._console.width)
        text = fit(progress.columns(now - self._started), room)
        self._bars.update(self._tokenize, total=max(progress.total, 1), completed=progress.bytes_done, text=text)
        if self._scatter is not None:
            self._bars.update(
                self._scatter,
                total=progress.windows or max(progress.windows_done * 2, 1),
                completed=progress.windows_done,
                text=fit([Column(0, progress.windows_text())], room),
            )
        self._bars.update(
            self._build,
            total=progress.shards or max(progress.shards_done * 2, 1),
            completed=progress.shards_done,
            text=fit([Column(0, progress.shards_text()), *([Column(1, what)] if what else [])], room),
        )
        if now - self._drawn >= DRAW_INTERVAL_S or what:
            self._drawn = now
            self._bars.refresh()

    def close(self) -> None:
        if self.is_drawing:
            self._draw(time.monotonic(), "")
            self._bars.stop()
            self.is_drawing = False


_RAY = {
    "auto": "joining the cluster of this machine, or starting one",
    "local": "starting a cluster on this machine",
}


def share_line(width: int) -> tuple[int, int]:
    """How wide a bar is on a terminal of so many columns, and how much room there is for the text behind it."""
    bar = BAR_WIDTH if width >= ROOMY else min(NARROW_BAR_WIDTH, max(4, width // 4))
    return bar, max(0, width - LABEL_WIDTH - bar - 1)


def _about(seconds: float) -> str:
    """About how long something takes; nothing where that is less than a second on an idle machine."""
    return f", ~{seconds:.0f} s" if seconds >= 1 else ""


def describe(event: Event, elapsed_s: float) -> str:
    """A fact in one line, or a few for the end."""
    match event:
        case Planned():
            engine = event.engine + (" (checked against the reference)" if event.is_checked else "")
            return (
                f"plan       {counted(event.files, 'file')}  {short_bytes(event.stored_bytes)} stored  "
                f"{estimated(event.estimated_tokens, 'token')}  {counted(event.ranges, 'range')}  "
                f"{printable(event.tokenizer)}  "
                f"engine {engine}{f'  shuffle {event.shuffle}' if event.shuffle else ''}"
                + "".join(f"\n{describe_group(group)}" for group in event.groups)
            )
        case CheckingEngine():
            return f"engine     checking {event.engine} against {event.reference}{_about(event.seconds)}, once"
        case RecordingReference():
            return f"tokenizer  recording what {event.reference} does{_about(event.seconds)}, once"
        case Resumed():
            return (
                f"resume     {event.ranges_done:,} of {counted(event.ranges, 'range')} and "
                f"{counted(event.shards_done, 'shard')} "
                "already done"
            )
        case Checking():
            return (
                f"check      {event.shards_done:,} of {counted(event.shards, 'shard')} of earlier starts read again  "
                f"{short_bytes(event.bytes_done)} of {short_bytes(event.bytes_total)}"
            )
        case Warned():
            return f"warning    {printable(event.message)}"
        case Preparing():
            more = f" and {counted(len(event.patterns) - 1, 'more pattern')}" if len(event.patterns) > 1 else ""
            return printable(f"prepare    loading {event.tokenizer}, listing {event.patterns[0]}{more}")
        case StartingRay():
            return f"ray        {_RAY.get(event.address or 'auto', f'joining the cluster at {event.address}')}"
        case WaitingForWorkers():
            return f"workers    waiting: 0 of {event.wanted:,} have started"
        case Committing():
            return f"commit     {counted(event.shards, 'shard')}: checking the totals, then writing the index"
        case Finished():
            return describe_end(event, elapsed_s)
        case Progress() | Advanced():
            return f"tokenize   {short_bytes(event.bytes_done)} of {short_bytes(event.bytes_total)}"
        case _:
            raise AssertionError(f"{type(event).__name__} is of no run: `train_progress` words it")


def describe_group(group: GroupPlan, *, is_complete: bool = False) -> str:
    """What a run takes of a group."""
    stored = "" if group.stored_bytes is None else f"  {short_bytes(group.stored_bytes)} stored"
    share = "all documents" if group.share == 1 else f"{short_share(group.share)} of the documents"
    tokens = (
        f"{group.tokens:,} tokens" if is_complete and group.tokens is not None else estimated(group.tokens, "token")
    )
    return f"group      {group.name}  {counted(group.files, 'file')}{stored}  {share}  {tokens}"


def count_group(group: GroupCounts) -> str:
    """What became of a group."""
    left_out = f" + {group.left_out:,} left out" if group.left_out else ""
    return (
        f"group      {group.name}  {counted(group.files, 'file')}  {group.documents:,} written + "
        f"{group.quarantined:,} quarantined{left_out}  {counted(group.tokens, 'token')}"
        f"{'' if group.asked is None else f' of {group.asked:,} asked for'}"
    )


def describe_end(event: Finished, elapsed_s: float) -> str:
    """What there is now, and how to check it."""
    ratio = f"  {event.text_bytes / event.tokens:.2f} bytes/token" if event.tokens else "  no tokens"
    if event.files_dropped or event.truncated_tokens:  # their text was read as well
        ratio = ""
    rows = "" if event.rows is None else f"{counted(event.rows, 'row')}, "
    word, uri = "complete" if event.already else "done", printable(event.uri)
    lines = [
        f"{word:<10} {event.documents_read:,} read = {event.documents_written:,} written + "
        f"{event.documents_quarantined:,} quarantined"
        f"{share_of_bytes(event.documents_quarantined, event.quarantined_bytes, event.read_bytes)}"
        f"{f' + {event.documents_left_out:,} left out' if event.documents_left_out else ''}   "
        f"{counted(event.tokens, 'token')} in {rows}"
        f"{counted(event.shards, 'shard')}{ratio}  "
        f"{short_time(elapsed_s)}"
    ]
    if event.already:
        lines[0] += "   (nothing to do: this run was finished before; its source and shards were not checked)"
    lines += [count_group(group) for group in event.groups]
    if event.truncated_tokens:
        share = event.truncated_tokens / (event.tokens + event.truncated_tokens)
        lines.append(f"           {event.truncated_tokens:,} tokens of longer documents left out, {share:.1%} of all")
    if event.files_dropped:
        lines.append(f"           {counted(event.files_dropped, 'corrupt file')} left out: {uri}/_tokenization/files")
    if event.rebuilt:
        lines.append(f"           {counted(event.rebuilt, 'mismatched or missing shard')} written again")
    lines.append(f"           {uri}/index.json   check it: {printable(tokjob('verify', event.uri))}")
    if event.documents_quarantined:
        limit = "" if event.quarantine_limit is None else f", limit {event.quarantine_limit:,}"
        lines.append(
            f"           unusable documents: {uri}/_tokenization/quarantine.jsonl.zst "
            f"({event.documents_quarantined:,}{limit}); "
            f"list them: {printable(tokjob('show', '--quarantined', event.uri))}"
        )
    return "\n".join(lines)
