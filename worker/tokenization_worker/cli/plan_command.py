"""`tokjob plan`: what a run would do."""

from __future__ import annotations

import dataclasses
import sys

import orjson

from tokenization_worker.api.data import Delimiters, OutputFormat
from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.manifest import JobParser, job_from_arguments, print_manifest
from tokenization_worker.cli.numbers import counted, read_count, short_bytes, short_count, short_time
from tokenization_worker.cli.progress import describe, describe_group
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.preview import Preview, ShufflePreview, preview_run
from tokenization_worker.planning.row_estimate import RowEstimate
from tokenization_worker.storage.retry import giving_up_unknown_hosts


def main(arguments: list[str]) -> int:
    """Show the plan; writes nothing."""
    parser = JobParser(
        "tokjob plan",
        "Show what a run would do: files, bytes, ranges, estimated tokens (from a sample of the source), time and "
        "room. Writes only a test file at the output, which it deletes.",
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

    with giving_up_unknown_hosts():
        preview = preview_run(job, options.processes, watch)
    if options.json:
        messages = [event.message for event in warnings]
        print(orjson.dumps({**dataclasses.asdict(preview), "warnings": messages}).decode())
        return 0
    say("\n".join([*(describe(event, 0.0) for event in warnings), *_lines(preview)]))
    return 0


def _lines(preview: Preview) -> list[str]:
    free = "" if preview.free_bytes is None else f" ({short_bytes(preview.free_bytes)} free)"
    done = f"; {preview.ranges_done:,} done" if preview.ranges_done else ""
    ranges = f"{preview.ranges:,} of up to {short_bytes(preview.largest_range)}"
    lines = [
        f"source     {counted(preview.files, 'file')}{_size(preview)}",
        *([f"formats    {_formats(preview)}"] if preview.formats else []),
        *(describe_group(group, is_complete=preview.is_complete) for group in preview.groups),
        f"tokens     {_tokens(preview)}",
        *_delimiters(preview.delimiters),
        *([f"ranges     {ranges}{done}"] if preview.ranges else []),
        f"output     {printable(preview.output)}  {_shards(preview)}{free}",
        *([] if preview.rows is None else [f"rows       {_rows(preview, preview.rows)}"]),
        *([] if preview.shuffle is None else [f"shuffle    {_shuffle(preview.shuffle)}"]),
        f"engine     {preview.engine}: {preview.engine_reason}",
        *([f"decoding   not compared with the text: {preview.decoding}"] if preview.decoding else []),
        f"time       {_time(preview)}",
        f"there      {preview.there}",
    ]
    largest = ", ".join(f"{printable(uri)} ({short_bytes(size)})" for uri, size in preview.largest_files)
    return [*lines, f"largest    {largest}"] if largest else lines


def _delimiters(delimiters: Delimiters) -> list[str]:
    """A line for two of them; one is what every job has."""
    if not delimiters.is_pair:
        return []
    return [f"delimiters {delimiters.begin} before and {delimiters.end} after every document"]


def _size(preview: Preview) -> str:
    """What is known of the size of the source."""
    stored = "" if preview.stored_bytes is None else f"  {short_bytes(preview.stored_bytes)} stored"
    return stored + ("" if preview.source_bytes is None else f"  ~{short_bytes(preview.source_bytes)} decompressed")


def _tokens(preview: Preview) -> str:
    if preview.tokens is None:
        return f"unknown with {preview.tokenizer}: no whole document was found at the beginnings of the files"
    if preview.is_complete:
        return f"{short_count(preview.tokens)} with {preview.tokenizer}"
    return (
        f"~{short_count(preview.tokens)} with {preview.tokenizer} (~{preview.bytes_per_token or 0:.2f} bytes of "
        f"text/token, from a sample of {short_bytes(preview.sampled_bytes)})"
    )


def _shards(preview: Preview) -> str:
    kind = "  ".join((preview.dtype, *_other_than_npy(preview.output_formats)))
    if preview.shards is None or preview.shard_bytes is None:
        return f"unknown shards  {kind}"
    shards = f"{counted(preview.shards, 'shard')}  {kind}  {short_bytes(preview.shard_bytes)}"
    if preview.is_complete:
        return shards
    is_once = len(preview.output_formats) == 1 and preview.shuffle is None
    scratch = "as much again" if is_once else f"{short_bytes(preview.scratch_bytes or 0)} more"
    return f"~{shards}, {scratch} for a while"


def _shuffle(shuffle: ShufflePreview) -> str:
    return (
        f"{shuffle.words}: ~{counted(shuffle.windows, 'window')} of "
        f"{short_bytes(shuffle.window_bytes)}, {counted(shuffle.cells, 'cell')}; a worker holds up to "
        f"{short_bytes(shuffle.slot_bytes)} of them; the first shard comes when the whole source is tokenized"
    )


def _rows(preview: Preview, rows: RowEstimate) -> str:
    about = "" if preview.is_complete else "~"
    left_out = f"; {about}{short_count(rows.truncated)} tokens of longer documents left out" if rows.truncated else ""
    count = f"{about}{rows.count:,} of {counted(rows.length, 'token')}"
    return f"{count}, {about}{rows.utilization:.1%} of them text, padded with {printable(preview.padding)}{left_out}"


def _other_than_npy(formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats in one word, where they are not what a job without `formats` has."""
    return () if formats == (OutputFormat.NPY,) else (", ".join(formats),)


def _time(preview: Preview) -> str:
    if preview.is_complete:
        return "none"
    seconds = "unknown" if preview.seconds is None else f"~{short_time(preview.seconds)}"
    return f"{seconds} with {counted(preview.processes, 'worker process')}"


def _formats(preview: Preview) -> str:
    """How many files have which suffix; rare ones with their names."""
    words = []
    for suffix, count, names in preview.formats[:6]:
        named = f": {printable(', '.join(names))}" if count <= len(names) and len(preview.formats) > 1 else ""
        words.append(f"{count:,} {printable(suffix) or 'without a suffix'}{named}")
    more = len(preview.formats) - len(words)
    return "; ".join(words) + (f"; {more:,} more suffixes" if more else "")
