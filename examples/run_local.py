#!/usr/bin/env python3
"""What `make run` does: build a corpus, tokenize it, verify the dataset, print how to load it.

    python examples/run_local.py [--out FOLDER] [--megabytes N]

The script writes only below FOLDER (default: out, in the checkout). It prints each command that it runs. A second
start keeps the corpus and the finished run.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLES = Path("examples")

SNIPPET = """\
import numpy as np
from tokenization_worker import open_dataset
shard = np.load({shard!r}, mmap_mode="r")  # one shard: a plain numpy array
train = open_dataset({dataset!r})["train"]  # all shards as one array of tokens
x, y = train.tokens(0, 1024), train.tokens(1, 1025)  # a training window, and the next token of each token
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the steps; returns the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description="Build a corpus, tokenize it, verify it, say how to load it.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where corpus and dataset go (default out)")
    parser.add_argument("--megabytes", type=float, default=24.0, help="text in the corpus (default 24)")
    options = parser.parse_args(arguments)
    out = Path("out") if options.out == Path("out") else options.out.absolute()
    corpus, dataset = out / "corpus", out / "tokens"
    elsewhere = ["--source", str(corpus), "--output", str(dataset)] if out.is_absolute() else []
    steps = [
        ["python", str(EXAMPLES / "build_corpus.py"), str(corpus), "--megabytes", f"{options.megabytes:g}"],
        ["tokjob", "run", str(EXAMPLES / "local.yaml"), *elsewhere],
        ["tokjob", "verify", str(dataset)],
    ]
    for step in steps:
        code = run(step)
        if code:
            return code
    print_shards(dataset)
    return 0


def run(step: list[str]) -> int:
    """Print a command and run it in the checkout, with the programs of this Python's environment."""
    program = Path(sys.executable).with_name(step[0])
    shown = program.relative_to(CHECKOUT) if program.is_relative_to(CHECKOUT) else program
    print(f"\n$ {shlex.join([str(shown), *step[1:]])}", flush=True)
    return subprocess.run([program, *step[1:]], cwd=CHECKOUT, check=False).returncode


def print_shards(dataset: Path) -> None:
    """Where the shards are, and a few lines that load them."""
    shards = sorted((CHECKOUT / dataset).glob("*/*.npy"))
    print("\nThe shards:")
    for split in sorted({path.parent for path in shards}):
        mine = [path for path in shards if path.parent == split]
        stored = sum(path.stat().st_size for path in mine)
        print(f"  {dataset / split.name}/  {len(mine)} files, {stored / 1e6:.1f} MB, {mine[0].name} ...")
    first = dataset / "train" / "train_000000.npy"
    print("\nLoad them in training:\n")
    print(SNIPPET.format(shard=str(first), dataset=str(dataset)))


if __name__ == "__main__":
    sys.exit(main())
