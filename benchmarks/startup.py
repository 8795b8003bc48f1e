"""What every start costs: `tokjob run` on 1 MB of text, and `tokjob --help`, whole processes.

    python benchmarks/startup.py

The engine's verdict for this host is in the cache before anything counts. Medians; prints Markdown, and exits with 1
where a bar is missed. With so little text a run takes the reference engine; the rows with `--engine fastokens` show
what loading the accelerated one costs, and have no bar.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import orjson
from processes import Command, CommandFailed, run_command
from report import heading, note, table
from stdlib_text import iter_documents

RUN_BAR_S = 1.5
HELP_BAR_S = 0.4
TEXT_BYTES = 1_000_000
TOKJOB = Path(sys.executable).with_name("tokjob")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", default="gpt2,cl100k_base,o200k_base", help="(gpt2,cl100k_base,o200k_base)")
    parser.add_argument("--runs", type=int, default=7, help="of tokjob run (7)")
    parser.add_argument("--help-runs", type=int, default=15, help="of tokjob --help (15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenization-startup-") as folder:
        try:
            rows = measure(Path(folder), options.tokenizers.split(","), options.runs, options.help_runs)
        except CommandFailed as error:
            print(f"startup: {error}", file=sys.stderr)
            return 1
    print(heading("Start-up"))
    print("\n" + table(["command", "runs", "s, median", "s, min to max", "below"], rows))
    return 1 if any("missed" in row[-1] for row in rows) else 0


def measure(folder: Path, tokenizers: Sequence[str], runs: int, help_runs: int) -> list[list[str]]:
    source = folder / "source.jsonl"
    write_source(source)
    log = folder / "log"
    note("tokjob --help")
    rows = [describe("tokjob --help", time_all([TOKJOB, "--help"], help_runs, log), HELP_BAR_S)]
    for name in tokenizers:
        note(f"tokjob run, {name}")
        output = folder / "output"
        command: Command = [TOKJOB, "run", "--source", source, "--tokenizer", name, "--output", output]
        accelerated: Command = [*command, "--engine", "fastokens"]
        time_all(accelerated, 1, log, output)  # leaves the verdict in the cache
        rows.append(describe(f"tokjob run, 1 MB, {name}", time_all(command, runs, log, output), RUN_BAR_S))
        title = f"tokjob run --engine fastokens, 1 MB, {name}"
        rows.append(describe(title, time_all(accelerated, runs, log, output), None))
    return rows


def write_source(path: Path) -> None:
    """About a megabyte of text as JSON lines."""
    total = 0
    with path.open("wb") as file:
        for document in iter_documents():
            text = document.text[: TEXT_BYTES - total]
            file.write(orjson.dumps({"id": document.name, "text": text}) + b"\n")
            total += len(text)
            if total >= TEXT_BYTES:
                return


def time_all(command: Command, runs: int, log: Path, output: Path | None = None) -> list[float]:
    """Seconds of each of `runs` runs after one that does not count; `output` is removed after each."""
    seconds = []
    for _ in range(runs + 1):
        seconds.append(run_command(command, log=log).seconds)
        if output is not None:
            shutil.rmtree(output)
    return seconds[1:]


def describe(title: str, seconds: Sequence[float], bar_s: float | None) -> list[str]:
    middle = median(seconds)
    verdict = "" if bar_s is None else f"{bar_s:g}: " + ("reached" if middle < bar_s else "**missed**")
    return [title, str(len(seconds)), f"{middle:.3f}", f"{min(seconds):.3f} to {max(seconds):.3f}", verdict]


if __name__ == "__main__":
    sys.exit(main())
