"""How full rows are that are packed by best fit, beside those of concatenated documents; and how long packing takes.

    python benchmarks/packing.py                                   # a corpus from Python's own sources
    python benchmarks/packing.py --corpus FOLDER_OF_JSONL_ZST

For three lengths a job runs with each packing. `more rows`: than all tokens need without padding. `cut`: documents in
two rows or more that are no longer than a row. Prints Markdown, and exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from corpus import write_stdlib_corpus
from paired_jobs import TOKJOB
from processes import run_command
from report import heading, table

from tokenization_worker.sequences.best_fit import pack_documents

MOST_MORE_ROWS = {512: 0.003, 2048: 0.0015, 8192: 0.0015}
PIECES, BLOCK_TOKENS, MOST_SECONDS = 16_000_000, 1 << 24, 30.0
STDLIB_BYTES = 100_000_000


class Rows(NamedTuple):
    """What a job made: its rows, those that its tokens need, and of how many documents how many are cut that fit."""

    rows: int
    needed: int
    tokens: int
    documents: int
    cut: int


def make_rows(corpus: Path, output: Path, length: int, packing: str) -> Rows:
    """Run a job and read its index and files of parts."""
    settings = [f"output.sequence.length={length}", f"output.sequence.packing={packing}"]
    flags = [part for setting in settings for part in ("--set", setting)]
    run_command(
        [TOKJOB, "run", "--source", corpus, "--tokenizer", "gpt2", *flags, "--output", output],
        log=output.with_suffix(".log"),
    )
    [split] = json.loads((output / "index.json").read_bytes())["splits"]
    parts = np.concatenate([np.load(path) for path in sorted((output / "parts").rglob("*.npy"))])
    parts.sort(order=["file", "position", "offset"])
    is_first = np.append(True, (np.diff(parts["file"]) != 0) | (np.diff(parts["position"].astype(np.int64)) != 0))
    first = np.flatnonzero(is_first)
    lengths, pieces = np.add.reduceat(parts["length"].astype(np.int64), first), np.diff(np.append(first, len(parts)))
    cut = int(((lengths <= length) & (pieces > 1)).sum())
    return Rows(split["sequences"]["rows"], -(-split["tokens"] // length), split["tokens"], split["documents"], cut)


def time_packing() -> float:
    """Seconds to pack many documents of a few dozen to a few thousand tokens, in blocks."""
    numbers = np.random.default_rng(0)
    lengths = (numbers.lognormal(5, 1, PIECES) + 1).astype(np.int64).clip(max=2048)
    blocks = np.split(
        lengths, np.searchsorted(np.cumsum(lengths), np.arange(1, lengths.sum() // BLOCK_TOKENS) * BLOCK_TOKENS)
    )
    started = time.perf_counter()
    for block in blocks:
        pack_documents(block, 2048)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    options = parser.parse_args()
    lines, missed = [], False
    with tempfile.TemporaryDirectory(prefix="tokenization-packing-") as name:
        corpus = options.corpus or Path(name) / "corpus"
        if options.corpus is None:
            write_stdlib_corpus(corpus, STDLIB_BYTES)
        for length, bar in MOST_MORE_ROWS.items():
            for packing in ("Concat", "BestFit"):
                made = make_rows(corpus, Path(name) / f"{length}-{packing}", length, packing)
                more = made.rows / made.needed - 1
                if packing == "BestFit":
                    missed |= more > bar or made.cut > 0
                lines.append(
                    [
                        f"{length:,}",
                        packing,
                        f"{made.rows:,}",
                        f"{more:.3%}" + (f" (bar {bar:.2%})" if packing == "BestFit" else ""),
                        f"{made.tokens / (made.rows * length):.2%}",
                        f"{made.cut:,} of {made.documents:,} ({made.cut / made.documents:.1%})",
                    ]
                )
    print(heading("Packing") + "\n")
    print(table(["length", "packing", "rows", "more rows", "of them documents", "cut"], lines) + "\n")
    seconds = time_packing()
    print(f"{PIECES:,} pieces are packed in {seconds:.1f} s (bar {MOST_SECONDS:.0f} s).")
    return 1 if missed or seconds > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
