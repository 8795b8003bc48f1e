"""A job that writes the four flat formats at once beside the same job with Npy alone, whole processes, in turns.

    python benchmarks/formats.py                                   # a corpus from Python's own sources
    python benchmarks/formats.py --corpus FOLDER_OF_JSONL_ZST

Every second pair goes backwards; each job runs once before any pair counts. Both jobs must write the same `.npy` files,
byte for byte. A ratio of speeds is Npy's seconds over those of four formats, of one pair; the median counts. Prints
Markdown, and exits with 1 where a ratio is below the bar.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from corpus import measure_folder, parse_size, write_stdlib_corpus
from processes import Command, CommandFailed, Cost, run_command
from report import heading, note, table
from versions import digest

BAR = 0.9
FORMATS = {"Npy": ["Npy"], "Npy, Raw, LlmC, Megatron": ["Npy", "Raw", "LlmC", "Megatron"]}
"""What is compared with, and what is compared."""
TOKJOB = Path(sys.executable).with_name("tokjob")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    parser.add_argument("--bytes", type=parse_size, default="320MB", help="text of the corpus that is made (320MB)")
    parser.add_argument("--tokenizers", default="gpt2,cl100k_base", help="(gpt2,cl100k_base)")
    parser.add_argument("--processes", type=int, default=2, help="(2)")
    parser.add_argument("--pairs", type=int, default=5, help="that count (5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenization-formats-") as folder:
        try:
            rows = measure(Path(folder), options)
        except CommandFailed as error:
            print(f"formats: {error}", file=sys.stderr)
            return 1
    print(heading("Formats"))
    header = ["tokenizer", "formats", "s, median", "s, min to max", "CPU s", "MB of text/s", "ratio (min to max)"]
    print("\n" + table([*header, f"bar {BAR:g}"], rows))
    return 1 if any("missed" in row[-1] for row in rows) else 0


def measure(folder: Path, options: argparse.Namespace) -> list[list[str]]:
    corpus = options.corpus
    if corpus is None:
        corpus = folder / "corpus"
        write_stdlib_corpus(corpus, options.bytes)
    text_bytes = sum(file.text_bytes for file in measure_folder(corpus, ()))
    rows: list[list[str]] = []
    for tokenizer in options.tokenizers.split(","):
        command: Command = [TOKJOB, "run", "--source", corpus, "--tokenizer", tokenizer]
        pairs = run_pairs([*command, "--processes", str(options.processes)], options.pairs, folder)
        rows += describe(tokenizer, pairs, text_bytes)
    return rows


def run_pairs(command: Command, pairs: int, folder: Path) -> list[dict[str, Cost]]:
    """The costs of each pair by the names of `FORMATS`. Raises `CommandFailed` where the `.npy` files differ."""
    found = []
    digests = set()
    for turn in range(pairs + 1):
        note(f"{command[-3]}: pair {turn} of {pairs}")
        costs = {}
        for name in FORMATS if turn % 2 else reversed(FORMATS):
            output = folder / "output"
            layout = f"output.formats=[{', '.join(FORMATS[name])}]"
            costs[name] = run_command([*command, "--set", layout, "--output", output], log=folder / "log")
            digests.add(digest(output if len(FORMATS[name]) == 1 else output / "npy"))
            shutil.rmtree(output)
        if turn:
            found.append(costs)
    if len(digests) != 1:
        raise CommandFailed("the jobs write different .npy files")
    return found


def describe(tokenizer: str, pairs: list[dict[str, Cost]], text_bytes: int) -> list[list[str]]:
    alone, _ = FORMATS
    rows = []
    for name in FORMATS:
        seconds = [pair[name].seconds for pair in pairs]
        ratios = [pair[alone].seconds / pair[name].seconds for pair in pairs]
        ratio, verdict = "", ""
        if name != alone:
            ratio = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            verdict = "reached" if median(ratios) >= BAR else "**missed**"
        rows.append(
            [
                tokenizer,
                name,
                f"{median(seconds):.2f}",
                f"{min(seconds):.2f} to {max(seconds):.2f}",
                f"{median(pair[name].cpu_seconds for pair in pairs):.2f}",
                f"{text_bytes / 1e6 / median(seconds):.1f}",
                ratio,
                verdict,
            ]
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
