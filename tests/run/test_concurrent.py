"""Two runs of one job on one output at the same time: one dataset, the same bytes as alone, both succeed."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from support.corpus import Corpus
from support.engine.inline import inline
from support.runs import Held, Running, command, difference, leftovers, make_job, read_index
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.run import observe
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore

pytestmark = pytest.mark.slow

OUTPUT = {"shards": {"tokens": 20_000}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]}


@pytest.fixture(scope="module")
def alone(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a run that had the output for itself."""
    output = tmp_path_factory.mktemp("alone") / "out"
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined)
    run_job(job, options=Options(engine="reference"), executor=inline())
    return output


class Side(NamedTuple):
    """How one of the runs is started."""

    processes: int
    range_bytes: str = "64Ki"
    engine: str = "reference"


def arguments(mixed: Corpus, output: Path, log: Path, side: Side) -> list[str]:
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined, rangeBytes=side.range_bytes)
    return command(job, log, "--processes", str(side.processes), "--engine", side.engine, "--json")


def start(mixed: Corpus, output: Path, log: Path, side: Side) -> Running:
    return Running(arguments(mixed, output, log, side), log)


def start_held(mixed: Corpus, output: Path, log: Path, side: Side) -> Held:
    """One that is still at work however much time passes."""
    return Held(arguments(mixed, output, log, side), log)


def require_equal(output: Path, alone: Path) -> None:
    assert difference(output, alone) is None
    assert read_index(output)["digest"] == read_index(alone)["digest"]
    assert leftovers(output) == []


TOGETHER = [
    # first and second, and the ranges that the first has done when the second starts
    (Side(1), Side(1, engine="fastokens"), 0),
    (Side(2), Side(2, "96Ki", "fastokens"), 0),
    (Side(1), Side(4, "256Ki", "fastokens"), 0),
    (Side(3, "96Ki"), Side(1, engine="fastokens"), 1),
    (Side(1), Side(2, engine="fastokens"), 3),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("first", "second", "head_start"), TOGETHER)
def test_two_runs_at_once_make_one_dataset_and_both_succeed(
    first: Side, second: Side, head_start: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    a = start_held(mixed, output, tmp_path / "a", first)
    if head_start:
        a.wait_for_ranges(head_start)
    b = start(mixed, output, tmp_path / "b", second)
    assert (a.wait(), b.wait()) == (0, 0), a.errors + b.errors
    require_equal(output, alone)


def test_five_runs_at_once_make_one_dataset(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    all_runs = [start(mixed, output, tmp_path / name, Side(1)) for name in "abcde"]
    codes = [running.wait() for running in all_runs]
    assert codes == [0] * 5, [running.errors for running in all_runs]
    require_equal(output, alone)


def require_next_start_finishes(mixed: Corpus, output: Path, log: Path, alone: Path) -> None:
    """What the killed run left is removed by whoever comes last; at the latest by the next start."""
    again = start(mixed, output, log, Side(1))
    assert again.wait() == 0, again.errors
    require_equal(output, alone)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("ranges", [1, 4, 9])
@pytest.mark.parametrize("victim", ["first", "second"])
def test_one_of_two_killed_in_the_middle_leaves_the_other_unharmed(
    victim: str, ranges: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    a = start_held(mixed, output, tmp_path / "a", Side(2))
    b = start_held(mixed, output, tmp_path / "b", Side(1))
    killed, other = (a, b) if victim == "first" else (b, a)
    killed.wait_for_ranges(ranges)
    assert killed.kill() == -9
    assert other.wait() == 0, other.errors
    require_next_start_finishes(mixed, output, tmp_path / "again", alone)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ranges", [0, 1, 12, 5])
def test_a_run_that_slept_while_another_finished_ends_well(
    ranges: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    sleeper = start_held(mixed, output, tmp_path / "a", Side(2))
    if ranges:
        sleeper.wait_for_ranges(ranges)
    sleeper.signal(signal.SIGSTOP)
    other = start(mixed, output, tmp_path / "b", Side(2))
    assert other.wait() == 0, other.errors
    assert difference(output, alone) is None
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait() == 0, sleeper.errors
    require_equal(output, alone)


def test_a_late_run_finds_everything_done_and_changes_nothing(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    a = start(mixed, output, tmp_path / "a", Side(2))
    assert a.wait() == 0
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.npy")}
    b = start(mixed, output, tmp_path / "b", Side(1, "1Mi", "fastokens"))
    assert b.wait() == 0
    assert b.events()[-1]["already"] is True
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.npy")} == before
    require_equal(output, alone)


def test_shards_of_a_run_that_has_just_won_the_race_for_the_plan_are_not_foreign(
    mixed: Corpus, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for a plan and looking for foreign files the other run may have got as far as its shards."""
    output = tmp_path / "out"
    shutil.copytree(alone, output)
    (output / "index.json").unlink()
    store = LocalStore(output)
    job, plan = make_job(mixed.folder, output, output=OUTPUT), read_plan(store)
    found = iter((None,))
    monkeypatch.setattr(observe, "read_plan", lambda store: next(found, plan))
    state = observe.observe_output(store, job)
    assert state.plan is plan is not None
    assert state.place_error is None


def test_workers_do_not_outlive_a_killed_driver(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "a", Side(3))
    running.wait_for_ranges(1)
    running.process.kill()
    assert running.wait() == -9
    require_next_start_finishes(mixed, output, tmp_path / "b", alone)


def test_a_killed_worker_costs_its_task_and_the_run_goes_on(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "a", Side(3))
    running.wait_for_ranges(1)
    worker = running.events()[-1]["receipt"]["pid"]
    os.kill(worker, signal.SIGKILL)  # a worker still: its driver stands still, and ends no worker meanwhile
    assert running.wait() == 0, running.errors
    require_equal(output, alone)
