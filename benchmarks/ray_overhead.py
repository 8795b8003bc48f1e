"""Speed of a run on Ray beside the same run with local processes, once the cluster is up; and tasks beside actors.

    python benchmarks/ray_overhead.py --corpus FOLDER_OF_JSONL_ZST      # or nothing: a corpus from Python's sources

A cluster of one node is started first. Each round runs every kind once, each in a process of its own (`ray_driver.py`),
every second round backwards; a run is timed from `run_job` to its index, without the connecting, which is told beside
it. All must write a dataset of the same digest. Prints Markdown, and exits with 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from contenders import ONE_THREAD
from corpus import Corpus, link_repeated, measure_folder, parse_size, write_stdlib_corpus
from processes import Command, CommandFailed, run_command
from ray.cluster_utils import Cluster
from ray_driver import KINDS
from report import heading, note, table

BAR = 0.9
STDLIB_BYTES = 320_000_000
DRIVER = Path(__file__).with_name("ray_driver.py")


class Seconds(NamedTuple):
    """Of one run: connecting to the cluster, and the run itself."""

    connect_s: float
    run_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`")
    parser.add_argument("--min-bytes", type=parse_size, default="2GB", help="text that it is repeated to (2GB)")
    parser.add_argument("--tokenizer", default="cl100k_base", help="(cl100k_base)")
    parser.add_argument("--processes", type=int, default=2, help="and CPUs of the cluster (2)")
    parser.add_argument("--runs", type=int, default=3, help="rounds that count (3)")
    parser.add_argument("--no-tasks", action="store_true", help="leave out the tasks in place of actors")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tokenization-ray-"))
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": options.processes,
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
            "env_vars": ONE_THREAD,
        },
    )
    try:
        corpus = prepare_corpus(options, folder)
        kinds = [kind for kind in KINDS if kind != "tasks" or not options.no_tasks]
        seconds = measure(folder, corpus, cluster.address, kinds, options)
        lines, is_reached = report(corpus, seconds)
    except CommandFailed as error:
        print(f"ray_overhead: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder)
    print("\n".join(lines))
    return 0 if is_reached else 1


def prepare_corpus(options: argparse.Namespace, folder: Path) -> Corpus:
    source = options.corpus
    if source is None:
        source = folder / "stdlib"
        write_stdlib_corpus(source, min(options.min_bytes, STDLIB_BYTES))
    corpus = link_repeated(measure_folder(source, []), folder / "whole", options.min_bytes)
    note(f"corpus     {corpus.describe()}")
    return corpus


def measure(
    folder: Path, corpus: Corpus, address: str, kinds: list[str], options: argparse.Namespace
) -> dict[str, list[Seconds]]:
    """Seconds of each kind, round by round, after one that does not count; raises `CommandFailed`."""
    output, log = folder / "output", folder / "log"
    common: Command = ["--address", address, "--source", corpus.folder, "--tokenizer", options.tokenizer]
    seconds: dict[str, list[Seconds]] = {kind: [] for kind in kinds}
    digests: set[str] = set()
    for number in range(options.runs + 1):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            command = [sys.executable, DRIVER, kind, *common]
            command += ["--output", output, "--processes", str(options.processes)]
            os.sync()
            run_command(command, log=log, environment=ONE_THREAD)
            found = Seconds(**json.loads(log.read_text().splitlines()[-1]))
            digests.add(json.loads((output / "index.json").read_bytes())["digest"])
            if len(digests) > 1:
                raise CommandFailed(f"the dataset of {kind} has another digest than the others")
            shutil.rmtree(output)
            note(f"{'round ' + str(number) if number else 'warm-up':<10} {kind:<8} {found.run_s:8.2f} s")
            if number:
                seconds[kind].append(found)
    return seconds


def report(corpus: Corpus, seconds: dict[str, list[Seconds]]) -> tuple[list[str], bool]:
    """Markdown, and whether tasks on Ray are fast enough."""
    rows = []
    speeds = {}
    local_s = median(run.run_s for run in seconds["local"])
    for kind, found in seconds.items():
        runs = [run.run_s for run in found]
        ratios = [local.run_s / run.run_s for local, run in zip(seconds["local"], found, strict=True)]
        speeds[kind] = median(ratios)
        rows.append(
            [
                {"local": "local processes", "ray": "**Ray**", "tasks": "Ray, with tasks in place of actors"}[kind],
                f"{median(runs):.2f}",
                f"{min(runs):.2f} to {max(runs):.2f}",
                f"{median(run.connect_s for run in found):.2f}",
                f"{speeds[kind]:.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{local_s / median(runs):.2f}",
            ]
        )
    is_reached = speeds["ray"] >= BAR
    head = [
        "who",
        "run, s, median",
        "s, min to max",
        "connecting, s",
        "speed / local, median of pairs",
        "min to max",
        "by the medians",
    ]
    verdict = f"Ray / local: {speeds['ray']:.2f}, to reach {BAR}: {'reached' if is_reached else '**missed**'}"
    return [
        heading("Ray beside local processes"),
        f"- corpus: {corpus.describe()}",
        "",
        table(head, rows),
        "",
        verdict,
    ], (is_reached)


if __name__ == "__main__":
    sys.exit(main())
