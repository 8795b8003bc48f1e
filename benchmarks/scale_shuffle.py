"""A shuffle of very many tokens: does the head process keep up, in time and in memory, and how many requests is it?

    python benchmarks/scale_shuffle.py                          # 1 TB and 4.25 TB of tokens: about ten minutes
    python benchmarks/scale_shuffle.py --terabytes 0.05         # does the script work?

The real plan, ledger, schedule and end of a shuffled run, on the store and the cluster of `scale.py`: every call takes
50 ms, and no token is read or written. A run is stopped when half of its shards are built, and started again. Requests
of workers are counted as the product makes them for such tasks. Prints Markdown; at full size exits with 1 where a bar
is missed.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from report import heading, note, table
from scale import (
    RESTART_BAR_S,
    Clock,
    Figure,
    Watch,
    World,
    in_own_process,
    make_job,
    memory,
    run_options,
    run_until_stopped,
    serving,
    to_row,
)
from scale_cluster import SHUFFLED_TOKENS_PER_BYTE, TOKEN_BYTES, read_requests
from scale_head import Corpus
from scale_objects import CONNECTIONS

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.run.run import run_job

TERABYTES = (1.0, 4.25)
"""The second one is near the most that a shuffle takes."""
FILE_BYTES = 256 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--terabytes", type=float, nargs="+", default=TERABYTES, help="of tokens, 4 bytes each (1 and 4.25)")
    add("--latency-ms", type=float, default=50.0, help="of every call (50)")
    add("--slots", type=int, default=1024, help="tasks in flight (1024)")
    options = parser.parse_args()
    is_full = tuple(options.terabytes) == TERABYTES and options.latency_ms == 50.0
    figures: list[Figure] = []
    for terabytes in options.terabytes:
        with serving(options.latency_ms / 1000) as address:
            files = max(1, round(terabytes * 1e12 / TOKEN_BYTES / SHUFFLED_TOKENS_PER_BYTE / FILE_BYTES))
            world = World(address, options.latency_ms / 1000, Corpus(files, (FILE_BYTES,)), options.slots)
            figures += measure(world, f"{terabytes:g} TB")
    print(heading("A shuffle's scale" + ("" if is_full else ": only a check of the script")))
    print(f"- {options.latency_ms:g} ms a call, {CONNECTIONS} calls at once, {options.slots:,} tasks in flight\n")
    print(table(["phase", "figure", "bar"], [to_row(figure) for figure in figures]))
    return 1 if is_full and not all(figure.is_kept for figure in figures) else 0


def measure(world: World, size: str) -> list[Figure]:
    figures: list[Figure] = []
    for title, work in (("run", measure_run), ("restart", measure_restart), ("requests", measure_requests)):
        note(f"{size}: {title}")
        figures += in_own_process(partial(work, world, size))
    return figures


def shuffled_job() -> TokenizationJob:
    return make_job("run", dtype="UInt32", shuffle={"seed": 0})


def measure_run(world: World, size: str) -> list[Figure]:
    """Until half of the shards are built."""
    world.enter()
    watch = Watch(Clock(), lambda event: bool(event.shards) and event.shards_done >= (event.shards or 0) // 2)
    run_until_stopped(world, shuffled_job(), watch)
    phase = f"{size}: {watch.ranges:,} ranges, {watch.windows:,} scattered objects, {watch.shards:,} of the shards"
    return [Figure(phase, str(watch.latest)), memory(f"{size}: run")]


def measure_restart(world: World, size: str) -> list[Figure]:
    world.enter()
    watch = Watch(Clock())
    finished = run_job(shuffled_job(), options=run_options(), executor=world.start_cluster, on_progress=watch)
    began = watch.began
    return [
        Figure(
            f"{size}: restart with {watch.found_shards:,} shards, to its first task",
            str(began),
            f"below {RESTART_BAR_S:.0f} s",
            began.seconds < RESTART_BAR_S,
        ),
        Figure(f"{size}: from there to the end, {finished.shards:,} shards", f"{watch.latest.seconds:.0f} s"),
        memory(f"{size}: restart and end"),
    ]


def measure_requests(world: World, size: str) -> list[Figure]:
    """Of the workers of both runs; the head's are few."""
    counts = read_requests(world.address)
    shown = ", ".join(f"{stage} {count:,}" for stage, count in counts.items())
    return [Figure(f"{size}: requests of workers", shown)]


if __name__ == "__main__":
    sys.exit(main())
