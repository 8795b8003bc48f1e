"""`tokjob plan`: what a run would do."""

from __future__ import annotations

import dataclasses
import sys

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.manifest import JobParser, job_from_arguments, print_manifest
from tokenization_worker.cli.numbers import counted, read_count, short_bytes, short_count, short_time
from tokenization_worker.cli.progress import describe
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.preview import Outlook, look_ahead


def main(arguments: list[str]) -> int:
    """Show the plan; writes nothing."""
    parser = JobParser(
        "tokjob plan",
        "Show what a run would do: files, bytes, ranges, estimated tokens (from a sample of the source), "
        "time and room. Writes nothing but a probe at the output, which it deletes.",
    )
    parser.add_argument("--processes", type=read_count, help="worker processes to plan for")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="in a Pod of the operator: write the plan of this TokenizationCheckpoint"
    )
    options = parser.parse_args(arguments)
    if options.checkpoint:
        from tokenization_worker.cli.plan_checkpoint import plan_checkpoint

        return plan_checkpoint(options.checkpoint)
    job = job_from_arguments(options)
    if options.print_manifest:
        print(print_manifest(job), end="")
        return 0
    warnings: list[Warned] = []

    def watch(event: Event) -> None:
        if isinstance(event, Warned):
            warnings.append(event)
        elif sys.stderr.isatty():  # what takes a while is said at once; the answer goes to standard output
            say(describe(event, 0.0), error=True)

    outlook = look_ahead(job, options.processes, watch)
    if options.json:
        told = [event.message for event in warnings]
        print(orjson.dumps({**dataclasses.asdict(outlook), "warnings": told}).decode())
        return 0
    say("\n".join([*(describe(event, 0.0) for event in warnings), *_lines(outlook)]))
    return 0


def _lines(outlook: Outlook) -> list[str]:
    free = "" if outlook.free_bytes is None else f" ({short_bytes(outlook.free_bytes)} free)"
    lines = [
        f"source     {counted(outlook.files, 'file')}  {short_bytes(outlook.stored_bytes)} stored  "
        f"~{short_bytes(outlook.source_bytes)} decompressed",
        f"formats    {_formats(outlook)}",
        f"tokens     {_tokens(outlook)}",
        f"ranges     {outlook.ranges:,} of up to {short_bytes(outlook.largest_range)}",
        f"output     {printable(outlook.output)}  {_shards(outlook)}{free}",
        f"engine     {outlook.engine}: {outlook.engine_reason}",
        *([f"decoding   not compared with the text: {outlook.decoding}"] if outlook.decoding else []),
        f"time       {_time(outlook)} with {counted(outlook.processes, 'worker process')}",
        f"there      {outlook.there}",
    ]
    largest = ", ".join(f"{printable(uri)} ({short_bytes(size)})" for uri, size in outlook.largest_files)
    return [*lines, f"largest    {largest}"]


def _tokens(outlook: Outlook) -> str:
    if outlook.tokens is None:
        return f"unknown with {outlook.tokenizer}: no whole document was found at the beginnings of the files"
    return (
        f"~{short_count(outlook.tokens)} with {outlook.tokenizer} (~{outlook.bytes_per_token or 0:.2f} bytes of "
        f"text/token, from a sample of {short_bytes(outlook.sampled_bytes)})"
    )


def _shards(outlook: Outlook) -> str:
    if outlook.shards is None or outlook.shard_bytes is None:
        return f"unknown shards  {outlook.dtype}"
    size = f"{short_bytes(outlook.shard_bytes)}, as much again for a while"
    return f"~{counted(outlook.shards, 'shard')}  {outlook.dtype}  {size}"


def _time(outlook: Outlook) -> str:
    return "unknown" if outlook.seconds is None else f"~{short_time(outlook.seconds)}"


def _formats(outlook: Outlook) -> str:
    """How many files have which suffix; rare ones with their names."""
    words = []
    for suffix, count, names in outlook.formats[:6]:
        named = f": {printable(', '.join(names))}" if count <= len(names) and len(outlook.formats) > 1 else ""
        words.append(f"{count:,} {printable(suffix) or 'without a suffix'}{named}")
    more = len(outlook.formats) - len(words)
    return "; ".join(words) + (f"; {more:,} more suffixes" if more else "")
