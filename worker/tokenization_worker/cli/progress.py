"""How a run is shown: bars on a terminal, plain lines elsewhere, JSON lines for machines.

A display is a watcher of `events`; it owns standard output while the run lasts.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from contextlib import ExitStack, redirect_stdout
from typing import TYPE_CHECKING, Protocol

import orjson

from tokenization_worker.cli.numbers import counted, short_bytes, short_count, short_time
from tokenization_worker.events import Event, Finished, Planned, Progress, Resumed, Warned

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_INTERVAL_S = 10.0
DRAW_INTERVAL_S = 0.1


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
        self._events = sys.stdout.buffer
        self._is_ours = ExitStack()
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
        self._started = self._working_since = time.monotonic()
        self._last = self._started
        self._first: Progress | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Progress():
                if self._first is None:
                    self._first, self._working_since = event, time.monotonic()
                if time.monotonic() - self._last >= PLAIN_INTERVAL_S:
                    self._last = time.monotonic()
                    self._print(describe_progress(event, self._first, self._last - self._working_since))
            case _:
                self._print(describe(event, time.monotonic() - self._started))

    def _print(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        """Nothing is held."""


class TerminalDisplay:
    """Two bars, tokenize and build, below the facts."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        self._started = self._working_since = time.monotonic()
        self._first: Progress | None = None
        self.is_drawing = False
        self._console = Console(highlight=False)
        self._bars = Bars(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=23),
            TextColumn("{task.fields[text]}"),
            console=self._console,
            transient=False,
            auto_refresh=False,  # rich's thread and a line printed meanwhile may move the cursor up twice
        )
        self._drawn = 0.0
        self._tokenize: TaskID | None = None
        self._build: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Progress):
            if isinstance(event, Finished):
                self.close()
            self._console.print(describe(event, time.monotonic() - self._started), markup=False, soft_wrap=True)
            return
        if self._first is None or self._tokenize is None or self._build is None:
            self._first, self._working_since = event, time.monotonic()
            self.is_drawing = True
            self._bars.start()
            self._tokenize = self._bars.add_task("tokenize", text="")
            self._build = self._bars.add_task("build", text="")
        text = tokenize_text(event, self._first, time.monotonic() - self._working_since)
        self._bars.update(self._tokenize, total=max(event.bytes_total, 1), completed=event.bytes_done, text=text)
        shards = "?" if event.shards is None else f"{event.shards:,}"
        self._bars.update(
            self._build,
            total=event.shards or max(event.shards_done * 2, 1),
            completed=event.shards_done,
            text=f"{event.shards_done:,}/{shards} shards",
        )
        if time.monotonic() - self._drawn >= DRAW_INTERVAL_S:
            self._drawn = time.monotonic()
            self._bars.refresh()

    def close(self) -> None:
        if self.is_drawing:
            self._bars.stop()
            self.is_drawing = False


def tokenize_text(event: Progress, first: Progress, elapsed_s: float) -> str:
    """`68%  53.9M tokens  74M/s  312 MB/s  2 quarantined  1.2 s left`; rates are of this start's work."""
    elapsed_s = max(elapsed_s, 1e-3)
    share = event.bytes_done / event.bytes_total if event.bytes_total else 1.0
    done_now = event.bytes_done - first.bytes_done
    parts = [
        f"{share:4.0%}",
        f"{short_count(event.tokens)} tokens",
        f"{short_count((event.tokens - first.tokens) / elapsed_s)}/s",
        f"{short_bytes((event.source_bytes - first.source_bytes) / elapsed_s)}/s",
    ]
    if event.quarantined:
        parts.append(f"{event.quarantined:,} quarantined")
    if done_now > 0 and event.bytes_done < event.bytes_total:
        parts.append(f"{short_time((event.bytes_total - event.bytes_done) * elapsed_s / done_now)} left")
    return "  ".join(parts)


def describe_progress(event: Progress, first: Progress, elapsed_s: float) -> str:
    """One plain line."""
    shards = "?" if event.shards is None else f"{event.shards:,}"
    return f"tokenize   {tokenize_text(event, first, elapsed_s)}  build {event.shards_done:,}/{shards} shards"


def describe(event: Event, elapsed_s: float) -> str:
    """A fact in one line, or a few for the end."""
    match event:
        case Planned():
            engine = event.engine + (" (checked against the reference)" if event.is_accelerated else "")
            return (
                f"plan       {counted(event.files, 'file')}  {short_bytes(event.stored_bytes)} stored  "
                f"~{short_count(event.estimated_tokens)} tokens  {counted(event.ranges, 'range')}  {event.tokenizer}  "
                f"engine {engine}"
            )
        case Resumed():
            return (
                f"resume     {event.ranges_done:,} of {counted(event.ranges, 'range')} and "
                f"{counted(event.shards_done, 'shard')} "
                "already done"
            )
        case Warned():
            return f"warning    {event.message}"
        case Finished():
            return describe_end(event, elapsed_s)
        case Progress():
            return describe_progress(event, event, elapsed_s)


def describe_end(event: Finished, elapsed_s: float) -> str:
    """What there is now, and how to check it."""
    ratio = f"  {event.text_bytes / event.tokens:.2f} bytes/token" if event.tokens else "  no tokens"
    if event.files_dropped:  # their text was read as well
        ratio = ""
    word = "complete" if event.already else "done"
    lines = [
        f"{word:<10} {event.documents_read:,} read = {event.documents_written:,} written + "
        f"{event.documents_quarantined:,} quarantined   {counted(event.tokens, 'token')} in "
        f"{counted(event.shards, 'shard')}{ratio}  "
        f"{short_time(elapsed_s)}"
    ]
    if event.already:
        lines[0] += "   (nothing to do: this run was finished before; its source and shards were not looked at)"
    if event.files_dropped:
        lines.append(
            f"           {counted(event.files_dropped, 'damaged file')} dropped whole: {event.uri}/_tokenization/files"
        )
    if event.rebuilt:
        lines.append(f"           {counted(event.rebuilt, 'damaged or missing shard')} written again")
    lines.append(f"           {event.uri}/index.json   check it: tokjob verify {event.uri}")
    if event.documents_quarantined:
        limit = "" if event.quarantine_limit is None else f", limit {event.quarantine_limit:,}"
        lines.append(
            f"           unusable documents: {event.uri}/_tokenization/quarantine.jsonl.zst "
            f"({event.documents_quarantined:,}{limit})"
        )
    return "\n".join(lines)
