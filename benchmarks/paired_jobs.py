"""Two jobs on one corpus, whole processes, in turns."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from corpus import measure_folder, parse_size, write_stdlib_corpus
from processes import Command, CommandFailed, Cost, run_command
from report import heading, note, table

TOKJOB = Path(sys.executable).with_name("tokjob")
HEADER = ["tokenizer", "job", "s, median", "s, min to max", "CPU s", "MB of text/s", "ratio (min to max)", "bar"]


class Job(NamedTuple):
    """`settings`: its `--set` options; `digest`: of the folder that it wrote, what all jobs must agree in."""

    title: str
    settings: Sequence[str]
    digest: Callable[[Path], str]


class Pair(NamedTuple):
    """`job` should reach `bar` times the speed of `baseline`."""

    baseline: Job
    job: Job
    bar: float


def main(pairs: Sequence[Pair], name: str, description: str) -> int:
    """Print the table of some pairs as Markdown; 1 where a bar is missed or a run failed. `name`: of the benchmark."""
    options = parse_arguments(description)
    with tempfile.TemporaryDirectory(prefix=f"tokenization-{name}-") as folder:
        try:
            rows = [row for pair in pairs for row in measure(pair, Path(folder), options)]
        except CommandFailed as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    print(heading(name.capitalize()) + "\n\n" + table(HEADER, rows))
    return 1 if any("missed" in row[-1] for row in rows) else 0


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    parser.add_argument("--bytes", type=parse_size, default="320MB", help="text of the corpus that is made (320MB)")
    parser.add_argument("--tokenizers", default="gpt2,cl100k_base", help="(gpt2,cl100k_base)")
    parser.add_argument("--processes", type=int, default=2, help="(2)")
    parser.add_argument("--pairs", type=int, default=5, help="that count (5)")
    return parser.parse_args()


def measure(pair: Pair, folder: Path, options: argparse.Namespace) -> list[list[str]]:
    """Rows for `HEADER`. Raises `CommandFailed`: a run failed, or the digests of outputs differ."""
    corpus = options.corpus
    if corpus is None:
        corpus = folder / "corpus"
        if not corpus.exists():
            write_stdlib_corpus(corpus, options.bytes)
    text_bytes = sum(file.text_bytes for file in measure_folder(corpus, ()))
    rows: list[list[str]] = []
    for tokenizer in options.tokenizers.split(","):
        command: Command = [TOKJOB, "run", "--source", corpus, "--tokenizer", tokenizer]
        costs = _take_turns(pair, [*command, "--processes", str(options.processes)], options.pairs, folder)
        rows += _describe(tokenizer, pair, costs, text_bytes)
    return rows


def _take_turns(pair: Pair, command: Command, pairs: int, folder: Path) -> list[tuple[Cost, Cost]]:
    """The costs of baseline and job, `pairs` times. One more turn comes first and does not count; every second turn
    goes backwards.
    """
    found = []
    digests = set()
    for turn in range(pairs + 1):
        note(f"{command[-3]}: pair {turn} of {pairs}")
        costs = {}
        for job in (pair.baseline, pair.job) if turn % 2 else (pair.job, pair.baseline):
            output = folder / "output"
            settings = [part for setting in job.settings for part in ("--set", setting)]
            costs[job.title] = run_command([*command, *settings, "--output", output], log=folder / "log")
            digests.add(job.digest(output))
            shutil.rmtree(output)
        if turn:
            found.append((costs[pair.baseline.title], costs[pair.job.title]))
    if len(digests) != 1:
        raise CommandFailed(f"{pair.baseline.title} and {pair.job.title} write different tokens")
    return found


def _describe(tokenizer: str, pair: Pair, costs: Sequence[tuple[Cost, Cost]], text_bytes: int) -> list[list[str]]:
    ratios = [baseline.seconds / job.seconds for baseline, job in costs]
    ratio = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    verdict = f"{pair.bar:g}: " + ("reached" if median(ratios) >= pair.bar else "**missed**")
    rows = []
    for number, (job, *last) in enumerate(((pair.baseline, "", ""), (pair.job, ratio, verdict))):
        seconds = [turn[number].seconds for turn in costs]
        rows.append(
            [
                tokenizer,
                job.title,
                f"{median(seconds):.2f}",
                f"{min(seconds):.2f} to {max(seconds):.2f}",
                f"{median(turn[number].cpu_seconds for turn in costs):.2f}",
                f"{text_bytes / 1e6 / median(seconds):.1f}",
                *last,
            ]
        )
    return rows
