"""A run of very many files and ranges: does the head process keep up, in time and in memory?

    python benchmarks/scale.py                                          # the bars: about ten minutes
    python benchmarks/scale.py --planned-files 5000 --files 500 --ranges 2000      # does the script work?

The real plan, ledger, schedule, loop, end and status of a run; a store whose every call takes 50 ms (a page of a
listing is one call, and a process has up to 32 calls under way), and a cluster whose workers write what real ones would
write without reading or encoding anything. Store and cluster live in a process of their own; each phase is a process,
too, so that its peak memory (ru_maxrss) is its own. Prints Markdown; at full size exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import NamedTuple

from report import heading, note, table
from scale_cluster import serve
from scale_head import Corpus, RemoteObjects, SimulatedExecutor, SyntheticSource
from scale_objects import CONNECTIONS, ObjectStore

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.executor import Executor
from tokenization_worker.events import Event, Progress, Resumed
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output.plan_file import write_plan
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.planning.make_plan import make_plan_of
from tokenization_worker.planning.prepare import Prepared, prepare
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.open import open_store, serve_stores
from tokenization_worker.storage.sources import serve_source

PLANNED_FILES = 500_000
FILES = 50_000
RANGES = 200_000
LEFT_OPEN = 200
"""One of so many ranges is left for the restart: 1,000 of 200,000."""

RANGE_BYTES = 256 << 20
SMALL_FILES = (134_300_000, 134_300_000, 90_000_000, 90_000_000, 90_000_000)
"""Two and three to a range: 500,000 files are 54 TB."""

GIB = 1 << 30
PLAN_BAR_S = 120.0
RATE_BAR = 1_000.0
RESTART_BAR_S = 30.0
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class World(NamedTuple):
    """What a phase works on: where the service listens, how slow it is, and which files the source has."""

    address: str
    latency_s: float
    corpus: Corpus
    slots: int

    def enter(self) -> None:
        """Let `gs://` be this world, in this process."""
        serve_stores("gs", lambda uri: ObjectStore(uri, RemoteObjects(self.address, uri, self.latency_s)))
        serve_source("gs", lambda: SyntheticSource(self.corpus, self.latency_s))

    def start_cluster(self, prepared: Prepared, context: RunContext) -> Executor:
        """What `run_job` takes as `executor`."""
        del context
        return SimulatedExecutor(self.address, prepared.data.output.uri, self.slots)


class Figure(NamedTuple):
    """A row of the table. `bar`: in words, and whether the figure keeps it; None where there is none."""

    phase: str
    figure: str
    bar: str = ""
    is_kept: bool = True


def main() -> int:
    options = parse_arguments()
    is_full = (options.planned_files, options.files, options.ranges) == (PLANNED_FILES, FILES, RANGES)
    with serving(options.latency_ms / 1000) as address:
        figures = measure(address, options)
    print(heading("Scale" + ("" if is_full else ": only a check of the script")))
    print(f"- {options.latency_ms:g} ms a call, {CONNECTIONS} calls at once, {options.slots:,} tasks in flight\n")
    print(table(["phase", "figure", "bar"], list(map(to_row, figures))))
    return 1 if is_full and not all(figure.is_kept for figure in figures) else 0


@contextmanager
def serving(latency_s: float) -> Iterator[str]:
    """The address of a new store with its cluster, in a process of their own."""
    with tempfile.TemporaryDirectory(prefix="tokenization-scale-") as folder:
        address = str(Path(folder, "service"))
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        service = context.Process(target=start_service, args=(address, latency_s, theirs), daemon=True)
        service.start()
        mine.recv()
        try:
            yield address
        finally:
            service.kill()
            service.join()


def to_row(figure: Figure) -> list[str]:
    bar = figure.bar and figure.bar + (": kept" if figure.is_kept else ": **missed**")
    return [figure.phase, figure.figure, bar]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--planned-files", type=int, default=PLANNED_FILES, help=f"files of the first plan ({PLANNED_FILES:,})")
    add("--files", type=int, default=FILES, help=f"files of the run ({FILES:,}); with 0 those of the first plan")
    add("--ranges", type=int, default=RANGES, help=f"ranges of the run, a multiple of its files ({RANGES:,})")
    add("--latency-ms", type=float, default=50.0, help="of every call (50)")
    add("--slots", type=int, default=1024, help="tasks in flight (1024)")
    options = parser.parse_args()
    if options.files and options.ranges % options.files:
        parser.error("--ranges: write a multiple of --files")
    return options


def measure(address: str, options: argparse.Namespace) -> list[Figure]:
    """All phases, one after the other."""
    small = Corpus(options.planned_files, SMALL_FILES)
    large = Corpus(options.files, (options.ranges // max(options.files, 1) * RANGE_BYTES,)) if options.files else small
    latency_s = options.latency_ms / 1000
    planned = World(address, latency_s, small, options.slots)
    world = planned._replace(corpus=large)
    figures: list[Figure] = []
    for title, work in (
        ("plan", partial(measure_plan, planned)),
        ("run", partial(measure_run, world, options.ranges)),
        ("status of the stopped run", partial(measure_status, world, "Interrupted")),
        ("restart", partial(measure_restart, world)),
        ("status of the finished run", partial(measure_status, world, "Complete")),
        ("start of the finished run", partial(measure_again, world)),
    ):
        note(title)
        figures += in_own_process(work)
        for figure in figures[-2:]:
            note(f"  {figure.phase}: {figure.figure}")
    return figures


def in_own_process(work: Callable[[], list[Figure]]) -> list[Figure]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=send_figures, args=(work, theirs))
    process.start()
    theirs.close()
    try:
        figures: list[Figure] = mine.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"scale: a phase ended with exit code {process.exitcode}") from None
    process.join()
    return figures


def send_figures(work: Callable[[], list[Figure]], to: Connection) -> None:
    to.send(work())


def start_service(address: str, latency_s: float, ready: Connection) -> None:
    with Listener(address, backlog=256) as listener:
        ready.send(True)
        serve(listener, latency_s)


def make_job(name: str, **output: object) -> TokenizationJob:
    """A job that reads the whole corpus; `output`: more of its fields."""
    return TokenizationJob.from_object(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationJob",
            "metadata": {"name": "scale"},
            "spec": {
                "source": {"uris": ["gs://corpus/*.jsonl"]},
                "tokenizer": {"name": "bytes"},
                "output": {"uri": f"gs://tokens/{name}", **output},
            },
        }
    )


class Clock:
    """Seconds since it was made, of the clock and of this process's processor time."""

    def __init__(self) -> None:
        self._started, self._cpu_started = time.monotonic(), time.process_time()

    def read(self) -> Time:
        return Time(time.monotonic() - self._started, time.process_time() - self._cpu_started)


class Time(NamedTuple):
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.cpu_seconds:.1f} s of CPU)"


def memory(phase: str) -> Figure:
    """The peak of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT
    return Figure(f"{phase}: memory of the head", f"{peak / (1 << 20):,.0f} MiB", "below 1 GiB", peak < GIB)


def measure_plan(world: World) -> list[Figure]:
    world.enter()
    clock = Clock()
    prepared = prepare(make_job("planned"))
    plan = write_plan(open_store("gs://tokens/planned"), make_plan_of(prepared, None))
    took = clock.read()
    phase = f"plan of {len(plan.files):,} files, {prepared.stored_bytes / 1e12:.1f} TB, in {plan.n_ranges:,} ranges"
    return [Figure(phase, str(took), f"below {PLAN_BAR_S:.0f} s", took.seconds < PLAN_BAR_S), memory("plan")]


class Watch:
    """What a run told: when its work began and last went on, and what was done then; stops it when that is enough."""

    def __init__(self, clock: Clock, is_enough: Callable[[Progress], bool] = lambda event: False) -> None:
        self._clock = clock
        self._is_enough = is_enough
        self._stop = threading.Event()
        self.began = self.latest = Time(0, 0)
        self.found_ranges = self.found_shards = self.ranges = self.windows = self.shards = 0

    def __call__(self, event: Event) -> None:
        match event:
            case Resumed():
                self.found_ranges, self.found_shards = event.ranges_done, event.shards_done
            case Progress():
                self.latest = self._clock.read()
                if event.receipt is None:
                    self.began = self.latest
                self.ranges, self.windows, self.shards = event.ranges_done, event.windows_done, event.shards_done
                if self._is_enough(event):
                    self._stop.set()

    def should_stop(self) -> bool:
        return self._stop.is_set()


def run_options() -> Options:
    return Options(processes=None, count_processes=lambda: 1)


def run_until_stopped(world: World, job: TokenizationJob, watch: Watch) -> None:
    try:
        run_job(
            job,
            options=run_options(),
            executor=world.start_cluster,
            on_progress=watch,
            should_stop=watch.should_stop,
        )
    except Stopped:
        return
    raise AssertionError("the run was to be stopped")


def measure_run(world: World, ranges: int) -> list[Figure]:
    """Up to the last few ranges, then it is stopped."""
    world.enter()
    most = ranges - max(1, ranges // LEFT_OPEN)
    watch = Watch(Clock(), lambda event: event.ranges_done >= most)
    run_until_stopped(world, make_job("run"), watch)
    phase = f"run of {world.corpus.files:,} files"
    rate = watch.ranges / (watch.latest.seconds - watch.began.seconds)
    cpu_us = 1e6 * (watch.latest.cpu_seconds - watch.began.cpu_seconds) / watch.ranges
    return [
        Figure(f"{phase}: from its start to its first task", str(watch.began)),
        Figure(
            f"{phase}: {watch.ranges:,} ranges, and {watch.shards:,} shards built meanwhile",
            f"{rate:,.0f} ranges/s ({cpu_us:,.0f} us of CPU a range)",
            f"{RATE_BAR:,.0f} or more",
            rate >= RATE_BAR,
        ),
        memory("run"),
    ]


def measure_restart(world: World) -> list[Figure]:
    """To the first task that is handed out, then to the end."""
    world.enter()
    clock = Clock()
    watch = Watch(clock)
    finished = run_job(make_job("run"), options=run_options(), executor=world.start_cluster, on_progress=watch)
    ended = clock.read()
    to_end = Time(ended.seconds - watch.latest.seconds, ended.cpu_seconds - watch.latest.cpu_seconds)
    return [
        Figure(
            f"restart, {watch.found_ranges:,} ranges and {watch.found_shards:,} shards done: to its first task",
            str(watch.began),
            f"below {RESTART_BAR_S:.0f} s",
            watch.began.seconds < RESTART_BAR_S,
        ),
        Figure(f"end of the run: checks, tables, index, for {finished.shards:,} shards", str(to_end)),
        memory("restart and end"),
    ]


def measure_status(world: World, phase: str) -> list[Figure]:
    world.enter()
    clock = Clock()
    state = read_status("gs://tokens/run")
    took = clock.read()
    assert state.phase == phase, state
    return [
        Figure(f"status: {phase}, {state.ranges_done:,} of {state.ranges:,} ranges", str(took)),
        memory(f"status, {phase}"),
    ]


def measure_again(world: World) -> list[Figure]:
    world.enter()
    clock = Clock()
    finished = run_job(make_job("run"))
    assert finished.already
    return [Figure("start of a run that is complete", str(clock.read()))]


if __name__ == "__main__":
    sys.exit(main())
