"""What tokens cost a trainer: windows and rows of a split, beside a memory map of one's own.

    python benchmarks/windows.py [--dataset OUTPUT]

Windows and rows at random places of one split, in one process. Without `--dataset` it makes one of the standard
library's sources; a dataset of rows shows rows, too. Each way runs once before it counts; the median of the rounds
counts. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import orjson
from report import heading, note, table
from stdlib_text import iter_documents

from tokenization_worker import Options, TokenizationJob, open_dataset, run_job
from tokenization_worker.dataset.dataset import Split

BAR_US = 10.0
TEXT_BYTES = 40_000_000
SHARD_TOKENS = 1_000_000
WINDOW = 2049


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="a local folder; its largest split is read")
    parser.add_argument("--windows", type=int, default=20_000, help="of one round (20,000)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenization-windows-") as folder:
        dataset = open_dataset(options.dataset or make_dataset(Path(folder)))
        split = max(dataset.values(), key=len)
        note(f"{split!r} of {dataset.uri}")
        rows = measure(split, options.windows, options.rounds)
    print(heading("Windows"))
    print("\n" + table(["way", f"us for {WINDOW:,} tokens, median", "min to max", "below"], rows))
    return 1 if any("missed" in row[-1] for row in rows) else 0


def make_dataset(folder: Path) -> Path:
    """A dataset of about 40 shards of rows; a byte is a token."""
    source, output = folder / "source.jsonl", folder / "output"
    total = 0
    with source.open("wb") as file:
        for document in iter_documents():
            file.write(orjson.dumps({"id": document.name, "text": document.text}) + b"\n")
            total += len(document.text)
            if total >= TEXT_BYTES:
                break
    spec = {
        "source": {"uris": [str(source)]},
        "tokenizer": {"name": "bytes"},
        "output": {"uri": str(output), "sequence": {"length": WINDOW}, "shards": {"tokens": SHARD_TOKENS}},
    }
    kind = {"apiVersion": "tokenization.dev/v1alpha1", "kind": "TokenizationJob", "metadata": {"name": "windows"}}
    run_job(TokenizationJob.from_object({**kind, "spec": spec}), options=Options(processes=1))
    return output


def measure(split: Split, windows: int, rounds: int) -> list[list[str]]:
    random = np.random.default_rng(0)
    starts: list[int] = random.integers(len(split) - WINDOW, size=windows).tolist()
    maps = [shard.open() for shard in split.shards]
    size = split.shards[0].tokens
    inside = [start for start in starts if start // size == (start + WINDOW) // size]

    def own_map(start: int) -> object:
        number, first = divmod(start, size)
        return maps[number][first : first + WINDOW].copy()

    ways: list[tuple[str, Callable[[int], object], list[int], float | None]] = [
        ("split.tokens(start, end)", lambda start: split.tokens(start, start + WINDOW), starts, BAR_US),
        ("maps[number][first:last].copy(), within a shard", own_map, inside, None),
    ]
    if split.shards[0].row_length:
        rows_of_split = split.rows
        numbers: list[int] = random.integers(len(rows_of_split), size=windows).tolist()
        ways += [
            ("rows[i]", lambda row: rows_of_split[row], numbers, BAR_US),
            ("rows.parts(i)", rows_of_split.parts, numbers, None),
            ("rows.example(i)", rows_of_split.example, numbers, None),
        ]
    rows = []
    for title, read, places, bar in ways:
        times = [time_round(read, places) for _ in range(rounds + 1)][1:]
        middle = median(times)
        verdict = "" if bar is None else f"{bar:g}: " + ("reached" if middle < bar else "**missed**")
        rows.append([title, f"{middle:.1f}", f"{min(times):.1f} to {max(times):.1f}", verdict])
    return rows


def time_round(read: Callable[[int], object], starts: list[int]) -> float:
    """Microseconds of one call."""
    began = time.perf_counter()
    for start in starts:
        read(start)
    return (time.perf_counter() - began) / len(starts) * 1e6


if __name__ == "__main__":
    sys.exit(main())
