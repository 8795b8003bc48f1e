"""Run jobs through random scripts of faults, and compare what comes of them with a run that met none.

    PYTHONPATH=tests python tests/support/faults/fault_chaos.py --faults 500 --seed 1

A script is a few faults over a run's calls, drawn from its seed alone. The run is started again until a start ends
well; every other end must be an error that says to start again. Every tenth script has two drivers on one output.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.faults.fault_runs import SHUFFLE, Lab, emulator_host, make_corpus, small_windows
from support.stores.fault_proxy import Fault, What, faults_of, serve_faults
from support.stores.gcs_emulator import make_bucket, serve_emulator
from support.stores.gcs_rules import Call
from support.stores.quick_gcs import PATIENCE_S, SHORT_TIMEOUT_S, quick_gcs
from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import Finished

BUDGET_S = 20.0
MOST_FAULTS = 6
MOST_STARTS = 12 * MOST_FAULTS
"""A fault ends one start at most: so many starts are far more than a script can need."""

TWO_DRIVERS_EVERY = 10

CALLS = [call for call in Call if call is not Call.BUCKET]
OFTEN = {Call.LIST: 12, Call.STAT: 20, Call.READ: 20, Call.RANGE: 20, Call.UPLOAD: 20}
"""About how many calls of a kind a run makes; three of the others."""

CHECKED = ("/segments/", "/quarantine/", "/scattered/")
"""What carries a checksum of its own when it is read in ranges; a source file does not."""


LAYOUTS: dict[str, dict[str, Any]] = {"flat": {}, "shuffle": SHUFFLE}


class FaultFailure(AssertionError):
    """A run did not end as promised."""


def draw_script(seed: int, output: str) -> list[Fault]:
    """The faults of a seed, among those that something can notice."""
    chance = random.Random(seed)
    script = []
    for _ in range(chance.randint(1, MOST_FAULTS)):
        call = chance.choice(CALLS)
        what, after = chance.choice(faults_of(call))
        name = ""
        if what in (What.MISSING, What.GHOST):
            name = f"{output}/"  # what the plan is told of the source is the source
        if call is Call.RANGE and what in (What.FLIPPED, What.SHORT):
            name = chance.choice(CHECKED)
        times = chance.choice([1, 1, 1, 2, 4])
        script.append(Fault(what, call, chance.randint(1, OFTEN.get(call, 3)), times, after, name))
    return script


@dataclass
class Summary:
    """What was done. `met`: faults that hurt a call."""

    scripts: int = 0
    starts: int = 0
    met: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    ranges_again: int = 0

    def lines(self) -> list[str]:
        return [
            f"{self.scripts} scripts, {self.starts} starts, {self.met.total()} calls hurt, "
            f"{self.errors.total()} starts ended with an error; each dataset equal to a run's without faults",
            f"{self.ranges_again} ranges done twice",
            *(f"{number:>6}  {what}" for what, number in self.met.most_common()),
        ]


class FaultChaos:
    """Scripts against one corpus."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._say = say
        self.summary = Summary()

    def run_script(self, seed: int) -> None:
        """Run one seed's script until every driver has ended well; raises `FaultFailure`."""
        lab, output = self._lab, self._lab.new_output()
        drivers = 2 if seed % TWO_DRIVERS_EVERY == 0 else 1
        script = draw_script(seed, output)
        lab.proxy.plan(script)
        ran = [Counter[int]() for _ in range(drivers)]
        with ThreadPoolExecutor(drivers) as pool:
            errors = list(pool.map(lambda mine: self._drive(seed, output, mine), ran))
        for logged in lab.proxy.injected():
            self.summary.met[str(logged.fault.what if logged.fault else "")] += 1
        self._require_right(seed, script, output)
        again = max(mine.total() - len(mine) for mine in ran)
        failed = max(map(len, errors))
        causes = failed + sum(fault.times for fault in script)
        if lab.layout:  # what is scattered and lost is made of all ranges of its window; so it is by a late driver
            causes = (causes + drivers - 1) * lab.ranges
        if again > causes:
            raise FaultFailure(f"seed {seed}: {again} ranges done again after {failed} errors: {script}")
        self.summary.scripts += 1
        self.summary.ranges_again += again
        told = ", ".join(map(str, script))
        self._say(f"seed {seed}: {drivers} drivers, {failed} errors, {again} ranges again; {told}")

    def _drive(self, seed: int, output: str, ran: Counter[int]) -> list[str]:
        """Start until a start ends well; the reasons of the others."""
        errors: list[str] = []
        while len(errors) < MOST_STARTS:
            self.summary.starts += 1
            outcome = self._lab.run(output, ran)
            if isinstance(outcome, Finished):
                return errors
            if not isinstance(outcome, TemporaryError):
                raise FaultFailure(f"seed {seed}: {outcome}") from outcome
            errors.append(outcome.reason)
            self.summary.errors[outcome.reason] += 1
        raise FaultFailure(f"seed {seed}: {len(errors)} starts, and none ended well: {Counter(errors)}")

    def _require_right(self, seed: int, script: list[Fault], output: str) -> None:
        lab = self._lab
        lab.proxy.plan()
        last = lab.run(output)  # a start that finds all done cleans up what another could not
        if not (isinstance(last, Finished) and last.already):
            raise FaultFailure(f"seed {seed}: not complete after the last start: {last}; {script}")
        found = lab.dataset(output)
        if found != lab.expected:
            wrong = sorted(path for path in found | lab.expected if found.get(path) != lab.expected.get(path))
            raise FaultFailure(f"seed {seed}: {wrong} differ from a run's without faults: {list(map(str, script))}")
        if left := lab.leftovers(output):
            raise FaultFailure(f"seed {seed}: left behind: {left[:10]}: {list(map(str, script))}")


def run_fault_chaos(
    host: str,
    folder: Path,
    *,
    faults: int,
    seed: int,
    layout: str = "flat",
    say: Callable[[str], None] = print,
) -> Summary:
    """Run `faults` scripts, of seeds from `seed` on, on the emulator at `host`; raises `FaultFailure`."""
    with (
        small_windows(),
        serve_faults(host) as proxy,
        emulator_host(proxy.url),
        quick_gcs(BUDGET_S, lambda: proxy.read_timeout_s(SHORT_TIMEOUT_S, PATIENCE_S)),
    ):
        lab = Lab(proxy, make_bucket(host), layout=LAYOUTS[layout])
        lab.fill(make_corpus(folder / "corpus"))
        chaos = FaultChaos(lab, say)
        for number in range(seed, seed + faults):
            chaos.run_script(number)
        return chaos.summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=LAYOUTS, default="flat")
    options = parser.parse_args()
    started = time.monotonic()
    with serve_emulator() as host, tempfile.TemporaryDirectory(prefix="faults-") as folder:
        try:
            summary = run_fault_chaos(
                host, Path(folder), faults=options.faults, seed=options.seed, layout=options.layout
            )
        except FaultFailure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    print("\n".join(summary.lines()))
    print(f"{time.monotonic() - started:.0f} s, seeds {options.seed} to {options.seed + options.faults - 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
