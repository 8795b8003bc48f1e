#!/usr/bin/env python3
"""Train tokenizers of three sizes, choose one by the report, tokenize the corpus with it, and verify the dataset.

    python examples/choose_tokenizer.py CORPUS OUT                     on this machine
    python examples/choose_tokenizer.py CORPUS OUT --executor ray      on Ray

The choice: the smallest size that needs at most 5 % more tokens than the largest. The rule for your model may be
another one: each doubling of the vocabulary also doubles the embedding, which the report shows beside it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ENOUGH = 1.05


def main() -> int:
    """Run the four commands; returns the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description="Train tokenizers, choose one, tokenize with it, verify.")
    parser.add_argument("corpus", help="files, a folder or a glob")
    parser.add_argument("out", type=Path, help="where tokenizers and dataset go")
    parser.add_argument("--sizes", default="4000,8000,16000", help="sizes of vocabularies (%(default)s)")
    parser.add_argument("--executor", default="local", choices=["local", "ray"])
    options = parser.parse_args()
    trained, dataset = str(options.out / "tokenizers"), str(options.out / "tokens")
    executor = ["--executor", options.executor]
    try:
        tokjob("train", "--source", options.corpus, "--vocab-size", options.sizes, "--output", trained, *executor)
        report = json.loads(tokjob("report", trained, "--json", is_shown=False))
        chosen = choose(report["tokenizers"])
        print(f"\nchosen: {chosen['name']}, with {chosen['sourceTokens']:,} tokens in the corpus", flush=True)
        tokenizer = f"{trained}/{chosen['name']}"
        fingerprint = ["--tokenizer.fingerprint", chosen["fingerprint"]]
        tokjob(
            "run", "--source", options.corpus, "--tokenizer", tokenizer, *fingerprint, "--output", dataset, *executor
        )
        tokjob("verify", dataset)
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


def choose(tokenizers: list[dict[str, Any]]) -> dict[str, Any]:
    """The smallest tokenizer that is nearly as good as the largest."""
    least = tokenizers[-1]["sourceTokens"]
    return next(each for each in tokenizers if each["sourceTokens"] <= ENOUGH * least)


def tokjob(*words: str, is_shown: bool = True) -> str:
    """Print a command and run it; what it prints where that is not shown."""
    print(f"\n$ tokjob {shlex.join(words)}", flush=True)
    program = Path(sys.executable).with_name("tokjob")
    done = subprocess.run([program, *words], check=True, text=True, stdout=None if is_shown else subprocess.PIPE)
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
