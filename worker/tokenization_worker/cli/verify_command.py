"""`tokjob verify`: prove a dataset."""

from __future__ import annotations

import dataclasses
import sys
import time

import orjson

from tokenization_worker.cli.numbers import counted, read_count, short_bytes, short_time
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.outlook import absolute_uri
from tokenization_worker.verification.report import VerifyMode, VerifyProgress, VerifyReport
from tokenization_worker.verification.verify import SAMPLE_ONE_IN, dataset_digest, verify

SHOWN_FINDINGS = 20
EXIT_DAMAGED = 4


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
        "--sample-one-in", type=read_count, default=SAMPLE_ONE_IN, help="documents per one encoded again"
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
        print(orjson.dumps({"digest": digest}).decode() if options.json else digest)
        return 0
    started = time.monotonic()
    watch = _Watch(quiet=options.json)
    report = verify(
        uri,
        mode=VerifyMode.FULL if options.full else options.mode or VerifyMode.SAMPLE,
        processes=options.processes,
        on_progress=watch,
        sample_one_in=options.sample_one_in,
    )
    watch.end()
    if options.json:
        print(orjson.dumps(dataclasses.asdict(report)).decode())
    else:
        print("\n".join(_lines(report, time.monotonic() - started)))
    return 0 if report.is_clean else EXIT_DAMAGED


class _Watch:
    """One line that is written over on a terminal; a line every ten seconds elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._last = time.monotonic()

    def __call__(self, progress: VerifyProgress) -> None:
        now = time.monotonic()
        if self._quiet or now - self._last < (0.1 if self._is_terminal else 10.0):
            return
        self._last = now
        share = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
        text = f"verify     {share:4.0%}  {progress.phase}  {counted(progress.findings, 'finding')}"
        print(f"\r{text}" if self._is_terminal else text, end="" if self._is_terminal else "\n", file=sys.stderr)

    def end(self) -> None:
        """Leave the terminal's line empty."""
        if self._is_terminal and not self._quiet:
            print("\r\033[K", end="", file=sys.stderr)


def _lines(report: VerifyReport, elapsed_s: float) -> list[str]:
    lines = [
        f"shards     {report.shards:,} read, {short_bytes(report.shard_bytes)}, {counted(report.tokens, 'token')}",
    ]
    if report.mode is not VerifyMode.CHECKSUMS:
        dropped = f", {report.files_dropped:,} of them damaged and left out" if report.files_dropped else ""
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
    lines += [f"  {finding}" for finding in report.findings[:SHOWN_FINDINGS]]
    if len(report.findings) > SHOWN_FINDINGS:
        lines.append(f"  and {len(report.findings) - SHOWN_FINDINGS:,} more (--json shows all)")
    lines.append(f"damaged    {report.mode}: {counted(len(report.findings), 'finding')}  {short_time(elapsed_s)}")
    return [*lines, f"           next: {report.next_step}"]
