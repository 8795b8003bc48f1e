"""Speed and memory of `tokjob` beside another installed version of it, whole processes, in turns.

    python benchmarks/versions.py OTHER_VENV                            # a corpus from Python's own sources
    python benchmarks/versions.py OTHER_VENV --corpus FOLDER_OF_JSONL_ZST

OTHER_VENV is the virtual environment of the other version. Every second round goes backwards. Each version runs each
command once before any run counts. Both versions must write the same shards, byte for byte. Ratios are this version's
cost over the other's, median of the ratios of one round each; prints Markdown, and exits with 1 where a ratio is worse
than its bar. Memory is the peak of the largest process; it
cannot read below what this script itself needs.
"""

from __future__ import annotations

import argparse
import hashlib
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
from startup import write_source

BAR = 1.03
"""A version may cost this many times what the other one costs."""


class Case(NamedTuple):
    """One command; `arguments` gets the folder for the output. `runs`: of each version, that count."""

    title: str
    runs: int
    arguments: Callable[[Path], Command]


class Quantity(NamedTuple):
    """What is compared."""

    title: str
    of: Callable[[Cost], float]


QUANTITIES = (
    Quantity("seconds", lambda cost: cost.seconds),
    Quantity("CPU seconds", lambda cost: cost.cpu_seconds),
    Quantity("peak MB", lambda cost: cost.peak_rss_bytes / 1e6),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER_VENV")
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    parser.add_argument("--bytes", type=parse_size, default="320MB", help="text of the corpus that is made (320MB)")
    parser.add_argument("--tokenizers", default="gpt2,cl100k_base", help="(gpt2,cl100k_base)")
    parser.add_argument(
        "--runs", type=int, default=5, help="of a large run that count (5); a small one has 3 times as many"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenization-versions-") as folder:
        try:
            rows = measure(Path(folder), options)
        except CommandFailed as error:
            print(f"versions: {error}", file=sys.stderr)
            return 1
    print(heading("Beside another version"))
    print("\n" + table(["command", "quantity", "this", "other", "ratio", "min to max", f"bar {BAR:g}"], rows))
    return 1 if any("missed" in row[-1] for row in rows) else 0


def measure(folder: Path, options: argparse.Namespace) -> list[list[str]]:
    versions = (Path(sys.executable).with_name("tokjob"), options.other / "bin" / "tokjob")
    return [row for case in cases(folder, options) for row in describe(case, run_in_turns(case, versions, folder))]


def cases(folder: Path, options: argparse.Namespace) -> list[Case]:
    small = folder / "small.jsonl"
    write_source(small)
    corpus = options.corpus
    if corpus is None:
        corpus = folder / "corpus"
        write_stdlib_corpus(corpus, options.bytes)
    text_bytes = sum(file.text_bytes for file in measure_folder(corpus, ()))
    few, many = options.runs, options.runs * 3
    found = [Case("tokjob --help", many, lambda output: ["--help"])]
    for name in options.tokenizers.split(","):
        found += [
            Case(f"tokjob run, {name}, 1 MB", many, _run(small, name, "2")),
            Case(f"tokjob run, {name}, {text_bytes / 1e6:.0f} MB", few, _run(corpus, name, "2")),
            Case(f"tokjob run, {name}, {text_bytes / 1e6:.0f} MB, 1 process", few, _run(corpus, name, "1")),
        ]
    return found


def _run(source: Path, tokenizer: str, processes: str) -> Callable[[Path], Command]:
    command: Command = ["run", "--source", source, "--tokenizer", tokenizer, "--processes", processes, "--output"]
    return lambda output: [*command, output]


def run_in_turns(case: Case, versions: Sequence[Path], folder: Path) -> list[list[Cost]]:
    """The costs of each version. Raises `CommandFailed` where their shards differ."""
    costs: list[list[Cost]] = [[] for _ in versions]
    digests = set()
    for turn in range(case.runs + 1):
        note(f"{case.title}: {turn} of {case.runs}")
        numbers = range(len(versions))
        for number in numbers if turn % 2 else reversed(numbers):
            output = folder / "output"
            cost = run_command([versions[number], *case.arguments(output)], log=folder / "log")
            digests.add(digest(output))
            shutil.rmtree(output, ignore_errors=True)
            if turn:
                costs[number].append(cost)
    if len(digests) != 1:
        raise CommandFailed(f"{case.title}: the versions write different shards")
    return costs


def digest(output: Path) -> str:
    """SHA-256 of the shards, in the order of their names; of nothing where there are none."""
    sha256 = hashlib.sha256()
    for path in sorted(output.glob("*/*.npy")):
        sha256.update(path.name.encode())
        with path.open("rb") as file:
            sha256.update(hashlib.file_digest(file, "sha256").digest())
    return sha256.hexdigest()


def describe(case: Case, costs: list[list[Cost]]) -> list[list[str]]:
    rows = []
    for quantity in QUANTITIES:
        mine, other = ([quantity.of(cost) for cost in version] for version in costs)
        ratios = [a / b for a, b in zip(mine, other, strict=True)]
        found = median(ratios)
        verdict = "reached" if found <= BAR else "**missed**"
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append(
            [case.title, quantity.title, f"{median(mine):.2f}", f"{median(other):.2f}", f"{found:.3f}", spread, verdict]
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
