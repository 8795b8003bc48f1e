"""Training a tokenizer: the stages beside other trainers, and whole commands; in turns.

    python benchmarks/train.py                                    # text of Python's own sources
    python benchmarks/train.py --corpus FOLDER_OF_JSONL_ZST
    python benchmarks/train.py --corpus FOLDER --big 3GB           # one training on so much text, repeated
    python benchmarks/train.py --corpus FOLDER --check-counts      # our counts beside the library's, on all of the text

Stages: each contender is a process of its own that has warmed up before its clock starts; `peak` is of the whole
process. Ours read the text from a file and count with one core. gigabpe reads it from a file, too, and may use all
cores, as rustbpe may, which has it in memory. Our merges must be equal to those of the library `tokenizers`. Commands:
`tokjob train --until counts` with one and two processes: the stage that counts, from the plan to the last range, and
the whole. Prints Markdown; exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from corpus import SUFFIX, measure_folder, parse_size, write_stdlib_corpus
from processes import run_command
from report import heading, table
from trainers import SPECIAL

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TOKJOB = Path(sys.executable).with_name("tokjob")
PEERS = {"gigabpe": "gigabpe==0.1.0", "rustbpe": "rustbpe==0.1.0"}
PATTERNS = ("Gpt2", "Cl100k", "Llama3", "O200k")
COUNTING_BARS = {"Gpt2": 60.0, "Cl100k": 45.0, "Llama3": 45.0, "O200k": 45.0}
PEER_BARS = {"gigabpe": 0.7, "rustbpe": 1 / 3}
MOST_MEMORY = 1e9
TWO_PROCESSES = 1.8
MUCH_BYTES = 1_200_000_000
MOST_BIG_SECONDS = 120.0


def run_contender(python: Path, name: str, path: Path, pattern: str, vocab_size: int) -> dict[str, Any]:
    command = [python, Path(__file__).with_name("trainers.py"), name, path, pattern, vocab_size]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def install_peers(folder: Path) -> tuple[Path, list[str]]:
    """An environment with the other trainers, and those that could be had."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    there = []
    for name, requirement in PEERS.items():
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        if subprocess.run(pip, check=False).returncode == 0:
            there.append(name)
    return python, there


def write_text(corpus: Path, path: Path, most_bytes: int) -> int:
    """Documents of every file in equal parts, a special token behind each; returns the bytes."""
    files = sorted(corpus.glob(f"*{SUFFIX}"))
    size = 0
    with path.open("w", encoding="utf-8") as output:
        for file in files:
            taken = 0
            for line in zstd.decompress(file.read_bytes()).splitlines():
                text = json.loads(line)["text"]
                taken += len(text.encode())
                output.write(text + SPECIAL)
                if taken > most_bytes / len(files):
                    break
            size += taken
    return size


def compare_stages(options: argparse.Namespace, folder: Path, corpus: Path) -> tuple[list[list[str]], bool]:
    path = folder / "text"
    size = write_text(corpus, path, options.bytes)
    peers, there = install_peers(folder / "peers")
    rows, missed = [], False
    for pattern in PATTERNS:
        names = ["tokjob", *(there if pattern == "Gpt2" else [])]
        times: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for turn in range(options.turns):
            for name in names if turn % 2 else reversed(names):
                python = peers if name in PEERS else Path(sys.executable)
                times[name].append(run_contender(python, name, path, pattern, options.vocab_size))
        reference = run_contender(Path(sys.executable), "Hugging Face", path, pattern, options.vocab_size)
        is_equal = times["tokjob"][0]["merges"] == reference["merges"]
        missed |= not is_equal
        ours = median(each["seconds"] for each in times["tokjob"])
        speed = size / 1e6 / median(each["counting"] for each in times["tokjob"])
        peak = median(each["peak"] for each in times["tokjob"])  # the first turn may compile
        missed |= speed < COUNTING_BARS[pattern] or peak > MOST_MEMORY
        more = f"counting {speed:.0f} MB/s a core (bar {COUNTING_BARS[pattern]:.0f}); "
        more += f"{len(reference['merges']):,} merges {_said(is_equal)}"
        rows.append([pattern, "**tokjob**", f"{ours:.1f}", f"{peak / 1e9:.2f}", "", more])
        for name in names[1:]:
            theirs = median(each["seconds"] for each in times[name])
            ratio, bar = ours / theirs, PEER_BARS[name]
            missed |= ratio > bar
            peak = max(each["peak"] for each in times[name])
            rows.append([pattern, name, f"{theirs:.1f}", f"{peak / 1e9:.2f}", f"{ratio:.2f}", f"bar {bar:.2f}"])
        theirs = reference["seconds"]
        rows.append(
            [pattern, "Hugging Face", f"{theirs:.1f}", f"{reference['peak'] / 1e9:.2f}", f"{ours / theirs:.2f}", "once"]
        )
    return rows, missed


def compare_counts(options: argparse.Namespace, folder: Path, corpus: Path) -> tuple[list[list[str]], bool]:
    """Our counts beside a Counter over the pieces of the library `tokenizers`, on all text of the corpus."""
    path = folder / "text"
    size = write_text(corpus, path, sys.maxsize)
    rows, missed = [], False
    for pattern in PATTERNS:
        ours, theirs = (
            run_contender(Path(sys.executable), name, path, pattern, options.vocab_size)
            for name in ("counts", "library")
        )
        is_equal = ours["counts"] == theirs["counts"]
        missed |= not is_equal
        counts = [f"{ours['pieces']:,}", f"{ours['different']:,}", ours["counts"][:16], _said(is_equal)]
        rows.append([pattern, f"{size / 1e6:,.0f}", *counts, f"{ours['seconds']:.0f}", f"{theirs['seconds']:.0f}"])
    return rows, missed


def train_words(corpus: Path, output: Path, *flags: str) -> list[str | Path]:
    """A whole `tokjob train`."""
    return [TOKJOB, "train", "--source", str(corpus / f"*{SUFFIX}"), "--output", output, "--holdout", "0%", *flags]


def compare_processes(options: argparse.Namespace, folder: Path, corpus: Path) -> tuple[list[list[str]], bool]:
    repeat(corpus, folder / "much", MUCH_BYTES)  # so that single ranges do not decide
    times: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for turn in range(options.turns):
        for processes in (1, 2) if turn % 2 else (2, 1):
            flags = ["--vocab-size", "1000", "--until", "counts", "--processes", str(processes), "--json"]
            words = train_words(folder / "much", folder / f"counts-{turn}-{processes}", *flags)
            times[processes].append(time_counting(words))
    rows, ratios = [], []
    for number, name in enumerate(("the stage that counts", "the whole command")):
        one, two = ([each[number] for each in times[processes]] for processes in (1, 2))
        ratios.append([mine / theirs for mine, theirs in zip(one, two, strict=True)])
        words_of_ratio = f"{median(ratios[-1]):.2f} ({min(ratios[-1]):.2f} to {max(ratios[-1]):.2f})"
        bar = f"bar {TWO_PROCESSES}" if number == 0 else ""
        rows.append([name, f"{median(one):.1f}", f"{median(two):.1f}", words_of_ratio, bar])
    return rows, median(ratios[0]) < TWO_PROCESSES


def _said(is_equal: bool) -> str:
    return "equal" if is_equal else "NOT EQUAL"


def time_counting(command: Sequence[str | Path]) -> tuple[float, float]:
    """Seconds from the plan to the last range, and of the whole command."""
    began = planned = counted = time.perf_counter()
    n_counted = 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "trainingplanned":
                planned = time.perf_counter()
            elif event.get("ranges_done", n_counted) != n_counted:
                counted, n_counted = time.perf_counter(), event["ranges_done"]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return counted - planned, time.perf_counter() - began


def repeat(corpus: Path, folder: Path, wanted: int) -> int:
    """Link files of `corpus` into `folder` until they hold `wanted` bytes of text; returns the bytes."""
    folder.mkdir()
    files = measure_folder(corpus, ())
    size = number = 0
    while size < wanted:
        file = files[number % len(files)]
        (folder / f"{number:05d}{SUFFIX}").symlink_to(file.path)
        size += file.text_bytes
        number += 1
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    parser.add_argument("--bytes", type=parse_size, default="100MB", help="text that the stages take (100MB)")
    parser.add_argument("--big", type=parse_size, help="one training on so much text, and nothing else")
    parser.add_argument("--turns", type=int, default=3, help="(3)")
    parser.add_argument("--check-counts", action="store_true", help="compare counts with the library's; nothing else")
    parser.add_argument("--vocab-size", type=int, default=32000, help="(32000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenization-train-") as name:
        folder = Path(name)
        corpus = options.corpus or folder / "corpus"
        if options.corpus is None:
            write_stdlib_corpus(corpus, options.bytes)
        if options.big:
            size = repeat(corpus, folder / "big", options.big)
            flags = ["--vocab-size", str(options.vocab_size)]
            cost = run_command(train_words(folder / "big", folder / "out", *flags), log=folder / "log")
            print(heading("Training on much text") + "\n")
            print(
                table(
                    ["MB of text", "s", "largest memory, GB"],
                    [[f"{size / 1e6:,.0f}", f"{cost.seconds:.1f}", f"{cost.peak_rss_bytes / 1e9:.2f}"]],
                )
            )
            print((folder / "log").read_text())
            return 1 if cost.seconds > MOST_BIG_SECONDS else 0
        if options.check_counts:
            rows, missed = compare_counts(options, folder, corpus)
            print(heading("Counts beside the library's") + "\n")
            names = ["pattern", "MB of text", "pieces", "different", "digest", "the library's", "tokjob, s", "its s"]
            print(table(names, rows))
            return 1 if missed else 0
        stages, missed = compare_stages(options, folder, corpus)
        print(heading("Training") + "\n")
        print(table(["pattern", "stages of", "s, median", "peak, GB", "tokjob's time / theirs", ""], stages) + "\n")
        commands, is_slow = compare_processes(options, folder, corpus)
        print(table(["--until counts", "1 process, s", "2 processes, s", "ratio (min to max)", ""], commands))
    return 1 if missed or is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
