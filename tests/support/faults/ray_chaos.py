"""Kill workers, raylets and drivers of runs on Ray at random, and compare what comes of it.

    PYTHONPATH=tests python tests/support/faults/ray_chaos.py --runs 30 --seed 1

Real raylets, three nodes of two CPUs. In every run one victim gets SIGKILL once a random number of ranges is done: a
worker process in the middle of a task, a raylet with its node (a new one joins), or the driver, which is then started
again. Afterwards the bytes are those of a local run, nothing is left behind, and what was done twice is at most what
was under way in the slots that were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from support.corpus import Corpus, CorpusWriter, take_documents
from support.faults.ray_nodes import CPUS, Nodes, ray_nodes
from support.runs import Held, Running, command, difference, kill_all, leftovers, make_job, read_index, run_command

N_NODES = 3
OUTPUT = {"shards": {"tokens": 150_000}, "splits": [{"name": "val", "shards": 1}, {"name": "train"}]}
DEADLINE_S = 60
_LOST = re.compile(r"^(range \d+|shard \d+ of split \w+).* lost its (worker|node) and is retried")


class Victim(StrEnum):
    WORKER = "worker process"
    RAYLET = "raylet"
    DRIVER = "driver"


SLOTS_OF = {Victim.WORKER: 1, Victim.RAYLET: CPUS, Victim.DRIVER: N_NODES * CPUS}
"""How many tasks may be under way in what is killed."""

_KIND_OF = {Victim.WORKER: "worker", Victim.RAYLET: "node"}
"""What a run must say that it has lost."""


class RayChaosFailure(AssertionError):
    """A run is not what was promised; the folder is kept."""


@dataclass
class Summary:
    """`kills` per victim, and the tasks that were under way in them (`lost`), of all `tasks`."""

    kills: Counter[Victim] = field(default_factory=Counter)
    lost: Counter[Victim] = field(default_factory=Counter)
    tasks: int = 0
    missed: int = 0

    def lines(self) -> list[str]:
        found = [
            f"{self.kills.total()} runs with a kill, {self.tasks} tasks in all; every dataset equal to a local run's, "
            f"nothing left behind; in {self.missed} more runs the victim was gone before"
        ]
        found += [
            f"{self.kills[victim]:>4} times a {victim}: {self.lost[victim]} tasks were under way and done again, at "
            f"most {SLOTS_OF[victim]} each"
            for victim in Victim
        ]
        return found


def make_corpus(folder: Path) -> Corpus:
    """Some fifty ranges, each worth a noticeable time with the reference engine."""
    corpus = CorpusWriter(folder)
    corpus.jsonl(take_documents(4_000_000))
    corpus.jsonl(take_documents(1_500_000, first=700), pack="zstd")
    corpus.parquet(take_documents(1_500_000, first=1500), rows_per_group=40)
    corpus.jsonl(take_documents(1_000_000, first=2500), pack="gzip")
    return corpus.finish()


class RayChaos:
    """One cluster, one source, and the dataset of a local run."""

    def __init__(self, folder: Path, nodes: Nodes, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._say = say
        self._source = make_corpus(folder / "source").folder
        self._expected = folder / "expected"
        ended = run_command(command(self._job(self._expected), folder / "local", "--processes", "2"))
        if ended.returncode:
            raise RayChaosFailure(f"the local run failed: {ended.stderr}")
        self.summary = Summary()

    def run(self, victims: list[Victim]) -> None:
        """One run for each victim; one that was gone before it could be killed comes again."""
        waiting = list(victims)
        while waiting:
            victim = waiting.pop(0)
            output = self._folder / "out"
            if not self._one_run(victim, output, self._folder / "logs" / f"{self.summary.kills.total():03d}"):
                self.summary.missed += 1
                waiting.append(victim)
            shutil.rmtree(output)

    def _job(self, output: Path) -> Any:
        return make_job(self._source, output, output=OUTPUT, rangeBytes="160Ki")

    def _arguments(self, output: Path, log: Path) -> list[str]:
        options = ["--json", "--engine", "reference", "--ray-address", self._nodes.address]
        return command(self._job(output), log, *options)

    def _one_run(self, victim: Victim, output: Path, log: Path) -> bool:
        """Start, kill, finish, compare; False where there was nothing to kill any more."""
        running = Held(self._arguments(output, log), log / "first")
        ranges = self._chance.randrange(1, 25)
        running.wait_for_ranges(ranges)  # from here on it stands still, but for what its workers have begun
        before: set[str] = set()
        under_way = 0
        hit: str | None
        if victim is Victim.DRIVER:
            under_way = sum(len(self._nodes.busy_workers(number)) for number in range(N_NODES))
            running.kill()
            before = self._receipts(output)
            hit = "its tasks" if not (output / "index.json").exists() else None
            running = Running(self._arguments(output, log), log / "again")
        else:
            hit = self._kill_busy(running, victim)
        code = running.wait()
        if code:
            raise RayChaosFailure(f"{log}: exit code {code}: {running.errors}")
        events = running.events()
        lost = self._lost_tasks(events)
        if victim is Victim.DRIVER:
            told = {_name(event["receipt"]) for event in events if event["event"] == "progress" and event["receipt"]}
            if again := told & before:
                raise RayChaosFailure(f"{log}: done again although there were receipts: {sorted(again)}")
            if lost:
                raise RayChaosFailure(f"{log}: nothing was killed but the driver, and tasks were lost: {lost}")
        self._require_no_workers(log)
        self._compare(output, log)
        if hit is None:
            return False
        if wrong := [what for what, kind in lost if kind != _KIND_OF.get(victim)]:
            raise RayChaosFailure(f"{log}: of a killed {victim} it was said that something else was lost: {wrong}")
        if len(lost) > SLOTS_OF[victim]:
            raise RayChaosFailure(f"{log}: {len(lost)} tasks were lost with one {victim}: {lost}")
        n_lost = under_way if victim is Victim.DRIVER else len(lost)  # of a driver: none that had a receipt, see above
        self.summary.kills[victim] += 1
        self.summary.lost[victim] += n_lost
        self.summary.tasks += len(self._receipts(output))
        self._say(f"  {self.summary.kills.total():>3}  {victim} after {ranges} ranges ({hit}): lost {n_lost}, equal")
        return True

    def _kill_busy(self, running: Held, victim: Victim) -> str | None:
        """Kill a worker in a task, or a node with one; the run goes on meanwhile. None where it ended before."""
        numbers = list(range(1, N_NODES)) if victim is Victim.RAYLET else list(range(N_NODES))  # 0: the cluster's head
        running.release()
        deadline = time.monotonic() + DEADLINE_S
        while not running.has_ended:
            self._chance.shuffle(numbers)
            for number in numbers:
                workers = self._nodes.busy_workers(number)
                if not workers:
                    continue
                if victim is Victim.RAYLET:
                    self._nodes.kill_raylet(number)
                    self._nodes.add()
                    return f"{len(workers)} workers busy"
                worker = self._chance.choice(workers)
                try:
                    os.kill(worker, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return f"pid {worker}"
            if time.monotonic() > deadline:
                raise RayChaosFailure(f"no worker of {numbers} was busy for {DEADLINE_S} s")
        return None

    def _require_no_workers(self, log: Path) -> None:
        """Workers end with the driver that asked for them, also with one that was killed."""
        deadline = time.monotonic() + DEADLINE_S
        while left := [pid for number in range(N_NODES) for pid in self._nodes.workers(number)]:
            if time.monotonic() > deadline:
                raise RayChaosFailure(f"{log}: workers that outlive their drivers: {left}")
            time.sleep(0.1)

    def _lost_tasks(self, events: list[dict[str, Any]]) -> list[tuple[str, str]]:
        """What was lost, and whether with its worker or its node."""
        found = [_LOST.match(event["message"]) for event in events if event["event"] == "warned"]
        return [(match[1], match[2]) for match in found if match]

    def _receipts(self, output: Path) -> set[str]:
        ledger = output / "_tokenization" / "ledger" / "0"
        found = [json.loads(path.read_bytes()) for path in ledger.rglob("*.json")]
        return {_name(receipt) for receipt in found}

    def _compare(self, output: Path, log: Path) -> None:
        problem = difference(output, self._expected)
        if problem is None and read_index(output)["digest"] != read_index(self._expected)["digest"]:
            problem = "the digests differ"
        if problem is None and (left := leftovers(output)):
            problem = f"left behind: {left[:10]}"
        if problem is not None:
            raise RayChaosFailure(f"{log}: {problem}")


def _name(receipt: dict[str, Any]) -> str:
    if "range_id" in receipt:
        return f"range {receipt['range_id']}"
    return f"shard {receipt['index']} of split {receipt['split']}"


def run_ray_chaos(folder: Path, *, runs: int, seed: int, say: Callable[[str], None] = print) -> Summary:
    """`runs` runs, as many with each kind of victim; raises `RayChaosFailure`."""
    victims = [list(Victim)[number % len(Victim)] for number in range(runs)]
    random.Random(seed).shuffle(victims)
    try:
        with ray_nodes(N_NODES) as nodes:
            chaos = RayChaos(folder, nodes, seed, say)
            chaos.run(victims)
            return chaos.summary
    finally:
        kill_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ray-chaos-"))
    started = time.monotonic()
    try:
        summary = run_ray_chaos(folder, runs=options.runs, seed=options.seed)
    except RayChaosFailure as failure:
        print(f"FAILED (seed {options.seed}): {failure}\nkept: {folder}", file=sys.stderr)
        return 1
    print("\n".join(summary.lines()))
    print(f"{time.monotonic() - started:.0f} s, seed {options.seed}")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
