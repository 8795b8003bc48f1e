"""`tokjob status`: show the progress of a run at an output, from its ledger."""

from __future__ import annotations

import dataclasses

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, share_of_bytes, short_bytes, short_count
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.cli.progress import count_group
from tokenization_worker.inspect.status import read_status
from tokenization_worker.inspect.training_status import TrainingStatus, read_training_status
from tokenization_worker.messages.counts import counted_sizes
from tokenization_worker.output import layout


def main(arguments: list[str]) -> int:
    """Show what is done at an output."""
    parser = CommandParser(prog="tokjob status", description="Show the progress of a run at an output.")
    parser.add_argument("output", help="output.uri of a job")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    options = parser.parse_args(arguments)
    training = read_training_status(options.output)
    if training is not None:
        _show_training(training, as_json=options.json)
        return 0
    state = read_status(options.output)
    if options.json:
        print(orjson.dumps(dataclasses.asdict(state)).decode())
        return 0
    say(f"{state.phase:<10} {printable(state.uri)}")
    if state.message and not state.reason:
        say(f"           {printable(state.message)}")
    if state.reason:
        say(f"           {state.reason}: {printable(state.message)}")
    if state.ranges:
        windows = f"{counted(state.windows_done, 'window')} scattered, " if state.is_shuffled else ""
        say(
            f"           {state.ranges_done:,} of {counted(state.ranges, 'range')}, "
            f"{windows}{counted(state.shards_done, 'shard')}, {short_count(state.tokens)} tokens of "
            f"{short_bytes(state.source_bytes)} read, {state.quarantined:,} quarantined"
            f"{share_of_bytes(state.quarantined, state.quarantined_bytes, state.read_bytes)}, "
            f"{counted(state.files_dropped, 'file')} left out"
        )
        if state.truncated_tokens:
            say(f"           {short_count(state.truncated_tokens)} tokens of longer documents left out")
        for group in state.groups:
            say(count_group(group))
        if state.poison:
            say(
                f"           {counted(state.poison, 'document')} found to crash the tokenizer: "
                f"{printable(state.uri)}/{layout.CRASH_VERDICTS}"
            )
        say(f"           engine {state.engine} (epoch {state.epoch})  plan {state.plan_id[:16]}")
    say(f"           next: {state.next_step}")
    return 0


def _show_training(state: TrainingStatus, *, as_json: bool) -> None:
    if as_json:
        print(orjson.dumps(dataclasses.asdict(state)).decode())
        return
    say(f"{state.phase:<10} {printable(state.uri)}")
    if state.reason:
        say(f"           {state.reason}: {printable(state.message)}")
    if state.vocab_sizes:
        what = "a tokenizer" if len(state.vocab_sizes) == 1 else "tokenizers"
        say(f"           {what} of {counted_sizes(state.vocab_sizes)}, from counts {state.counts_digest[:16]}")
    else:
        merged = ", the counts are merged" if state.is_merged else ""
        say(f"           training: {state.ranges_done:,} of {counted(state.ranges, 'range')} counted{merged}")
    say(f"           next: {printable(state.next_step)}")
