"""`tokjob verify`: prove a dataset."""

from __future__ import annotations

import dataclasses
import os
import sys
import time

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import clock_time, counted, read_count, short_bytes, short_time
from tokenization_worker.cli.pace import Pace
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.cli.run_progress import Column, fit
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.verification.report import VerifyMode, VerifyProgress, VerifyReport
from tokenization_worker.verification.verify import SAMPLE_ONE_IN, dataset_digest, verify

SHOWN_FINDINGS = 20
EXIT_FINDINGS = 4


def main(arguments: list[str]) -> int:
    """Verify; 4 if anything is wrong."""
    parser = CommandParser(
        prog="tokjob verify",
        description="Prove a dataset. checksums: reads every shard once (about 1 GB/s a core). sample: also reads the "
        "whole source, recounts every document and encodes a sample again. full: encodes every document again with "
        "the reference engine (about 15 MB of text a second and core).",
    )
    parser.add_argument("output", help="output.uri of a finished job")
    parser.add_argument(
        "--mode", choices=[mode.value for mode in VerifyMode], help="how much to prove (default: sample)"
    )
    parser.add_argument("--full", action="store_true", help="short for --mode full")
    parser.add_argument(
        "--sample-one-in", metavar="N", type=read_count, default=SAMPLE_ONE_IN, help="documents per one encoded again"
    )
    parser.add_argument("--processes", type=read_count, help="worker processes (default: one a core)")
    parser.add_argument("--digest", action="store_true", help="only print the dataset's digest, from its bytes")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    options = parser.parse_args(arguments)
    if options.full and options.mode not in (None, VerifyMode.FULL):
        parser.error(f"--full contradicts --mode {options.mode}: leave one of them out")
    if options.digest and (options.full or options.mode):
        parser.error("--digest proves nothing, in no mode: leave --mode and --full out")
    uri = absolute_uri(options.output)
    if options.digest:
        digest = dataset_digest(uri, processes=options.processes)
        say(orjson.dumps({"digest": digest}).decode() if options.json else digest)
        return 0
    started = time.monotonic()
    watch = _Watch(quiet=options.json)
    try:
        report = verify(
            uri,
            mode=VerifyMode.FULL if options.full else options.mode or VerifyMode.SAMPLE,
            processes=options.processes,
            on_progress=watch,
            sample_one_in=options.sample_one_in,
        )
    finally:
        watch.end()
    if options.json:
        print(orjson.dumps(dataclasses.asdict(report)).decode())
    else:
        say("\n".join(_lines(report, time.monotonic() - started)))
    return 0 if report.is_clean else EXIT_FINDINGS


class _Watch:
    """One line that is written over on a terminal; a line every ten seconds elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._pace = Pace()
        self._started = self._last = time.monotonic()
        if self._is_terminal and not quiet:
            self._write("verify     reading the index and the tables")

    def __call__(self, progress: VerifyProgress) -> None:
        now = time.monotonic()
        self._pace.take(now - self._started, progress.done_bytes)
        if self._quiet or now - self._last < (0.1 if self._is_terminal else 10.0):
            return
        self._last = now
        self._write(verify_line(progress, self._pace, now - self._started, self._columns(), bar=self._is_terminal))

    def _columns(self) -> int:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80 if self._is_terminal else 200

    def _write(self, text: str) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr)
            say(text, error=True, end="", flush=True)
        else:
            say(text, error=True)

    def end(self) -> None:
        """Leave the terminal's line empty."""
        if self._is_terminal and not self._quiet:
            print("\r\033[K", end="", file=sys.stderr)


def verify_line(progress: VerifyProgress, pace: Pace, elapsed_s: float, width: int, *, bar: bool) -> str:
    """`verify     #######............. 41%  source  312 MB/s  0 findings  0:31 left  0:22`, no longer than `width`.

    A line as long as the terminal would go on in the next one, so the last column stays free.
    """
    share = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
    label = "verify     "
    if bar:
        bar_width = min(20, max(4, width // 4))
        done = int(bar_width * share)
        label += "#" * done + "." * (bar_width - done) + " "
    columns = [
        Column(0, f"{share:4.0%}"),
        Column(5, progress.phase),
        Column(3, f"{short_bytes(pace.per_second())}/s"),
        Column(2, counted(progress.findings, "finding")),
    ]
    left = pace.left_s(progress.total_bytes)
    if left is not None:
        columns.append(Column(1, f"{clock_time(left)} left"))
    return (label + fit([*columns, Column(4, clock_time(elapsed_s))], width - len(label) - 1))[: max(0, width - 1)]


def _lines(report: VerifyReport, elapsed_s: float) -> list[str]:
    lines = [
        f"shards     {report.shards:,} read, {short_bytes(report.shard_bytes)}, {counted(report.tokens, 'token')}",
    ]
    if report.mode is not VerifyMode.CHECKSUMS:
        dropped = f", {report.files_dropped:,} of them corrupt and left out" if report.files_dropped else ""
        lines.append(
            f"source     {counted(report.files, 'file')} read{dropped}, {short_bytes(report.source_bytes)} stored, "
            f"{counted(report.documents, 'document')} and {report.quarantined:,} unusable recounted"
        )
        lines.append(
            f"tokens     {counted(report.documents_compared, 'document')} encoded again, "
            f"{counted(report.tokens_compared, 'token')} compared"
        )
    if report.digest is not None:
        lines.append(f"digest     {report.digest}")
    if report.is_clean:
        return [*lines, f"proven     {report.mode}: nothing is wrong  {short_time(elapsed_s)}"]
    lines += [f"  {printable(str(finding))}" for finding in report.findings[:SHOWN_FINDINGS]]
    if len(report.findings) > SHOWN_FINDINGS:
        lines.append(f"  and {len(report.findings) - SHOWN_FINDINGS:,} more (--json shows all)")
    lines.append(f"damaged    {report.mode}: {counted(len(report.findings), 'finding')}  {short_time(elapsed_s)}")
    return [*lines, f"           next: {report.next_step}"]
