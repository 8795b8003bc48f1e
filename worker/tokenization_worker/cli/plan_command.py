"""`tokjob plan`: what a run would do."""

from __future__ import annotations

import dataclasses

import orjson

from tokenization_worker.cli.manifest import JobParser, job_from_arguments, print_manifest
from tokenization_worker.cli.numbers import counted, read_count, short_bytes, short_count, short_time
from tokenization_worker.cli.progress import describe
from tokenization_worker.outlook import Outlook, look_ahead


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
    warnings: list[str] = []
    outlook = look_ahead(job, options.processes, lambda event: warnings.append(describe(event, 0.0)))
    if options.json:
        print(orjson.dumps(dataclasses.asdict(outlook)).decode())
        return 0
    print("\n".join([*warnings, *_lines(outlook)]))
    return 0


def _lines(outlook: Outlook) -> list[str]:
    free = "" if outlook.free_bytes is None else f" ({short_bytes(outlook.free_bytes)} free)"
    lines = [
        f"source     {counted(outlook.files, 'file')}  {short_bytes(outlook.stored_bytes)} stored  "
        f"~{short_bytes(outlook.source_bytes)} decompressed",
        f"tokens     ~{short_count(outlook.tokens)} with {outlook.tokenizer} "
        f"(~{outlook.bytes_per_token:.2f} bytes of text/token, from a sample of {short_bytes(outlook.sampled_bytes)})",
        f"ranges     {outlook.ranges:,} of up to {short_bytes(outlook.largest_range)}",
        f"output     {outlook.output}  ~{counted(outlook.shards, 'shard')}  {outlook.dtype}  "
        f"{short_bytes(outlook.shard_bytes)}, as much again for a while{free}",
        f"engine     {outlook.engine}: {outlook.engine_reason}",
        f"time       ~{short_time(outlook.seconds)} with {outlook.processes} worker processes",
        f"there      {outlook.there}",
    ]
    largest = ", ".join(f"{uri} ({short_bytes(size)})" for uri, size in outlook.largest_files)
    return [*lines, f"largest    {largest}"]
