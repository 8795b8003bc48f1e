"""Two runs of one job on one output at the same time: one dataset, the same bytes as alone, both succeed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from corpus import Corpus
from runs import Running, command, difference, leftovers, make_job, read_index

from tokenization_worker.adoption import refuse_foreign_files
from tokenization_worker.planning import prepare
from tokenization_worker.run import Options, run_job
from tokenization_worker.storage.local import LocalStore

OUTPUT = {"shards": {"tokens": 20_000}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]}
DEADLINE_S = 60


@pytest.fixture(scope="module")
def alone(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a run that had the output for itself."""
    output = tmp_path_factory.mktemp("alone") / "out"
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined)
    run_job(job, options=Options(processes=2, engine="reference"))
    return output


def start(mixed: Corpus, output: Path, log: Path, *, processes: int, range_bytes: str, engine: str) -> Running:
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined, rangeBytes=range_bytes)
    options = ["--processes", str(processes), "--engine", engine, "--json"]
    return Running(command(job, log.parent / log.name, *options), log)


def require_equal(output: Path, alone: Path) -> None:
    assert difference(output, alone) is None
    assert read_index(output)["digest"] == read_index(alone)["digest"]
    assert leftovers(output) == []


def wait_for_receipts(output: Path, count: int, running: Running) -> None:
    """Until so many ranges are done; watched from outside."""
    folder = output / "_tokenization" / "ledger" / "0" / "ranges"
    deadline = time.monotonic() + DEADLINE_S
    while not running.has_ended and (not folder.exists() or len(list(folder.iterdir())) < count):
        assert time.monotonic() < deadline
        time.sleep(0.0005)


TOGETHER = [
    # processes of each, ranges of each, receipts that the first has when the second starts
    (1, 1, "64Ki", "64Ki", 0),
    (2, 2, "64Ki", "96Ki", 0),
    (1, 4, "64Ki", "256Ki", 0),
    (3, 1, "96Ki", "64Ki", 1),
    (1, 2, "64Ki", "64Ki", 3),
]


@pytest.mark.parametrize(("first", "second", "ranges", "other_ranges", "head_start"), TOGETHER)
def test_two_runs_at_once_make_one_dataset_and_both_succeed(
    first: int, second: int, ranges: str, other_ranges: str, head_start: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    a = start(mixed, output, tmp_path / "a", processes=first, range_bytes=ranges, engine="reference")
    if head_start:
        wait_for_receipts(output, head_start, a)
    b = start(mixed, output, tmp_path / "b", processes=second, range_bytes=other_ranges, engine="fastokens")
    assert (a.wait(), b.wait()) == (0, 0), a.errors + b.errors
    require_equal(output, alone)


def test_five_runs_at_once_make_one_dataset(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    all_runs = [
        start(mixed, output, tmp_path / name, processes=1, range_bytes="64Ki", engine="reference") for name in "abcde"
    ]
    codes = [running.wait() for running in all_runs]
    assert codes == [0] * 5, [running.errors for running in all_runs]
    require_equal(output, alone)


@pytest.mark.parametrize("receipts", [1, 4, 9])
@pytest.mark.parametrize("victim", ["first", "second"])
def test_one_of_two_killed_in_the_middle_leaves_the_other_unharmed(
    victim: str, receipts: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    a = start(mixed, output, tmp_path / "a", processes=2, range_bytes="64Ki", engine="reference")
    b = start(mixed, output, tmp_path / "b", processes=1, range_bytes="64Ki", engine="reference")
    killed, other = (a, b) if victim == "first" else (b, a)
    wait_for_receipts(output, receipts, killed)
    assert killed.kill() == -9
    assert other.wait() == 0, other.errors
    # What the killed run left is removed by whoever comes last; at the latest by the next start.
    again = start(mixed, output, tmp_path / "again", processes=1, range_bytes="64Ki", engine="reference")
    assert again.wait() == 0, again.errors
    require_equal(output, alone)


@pytest.mark.parametrize("receipts", [0, 1, 5, 12])
def test_a_run_that_slept_while_another_finished_ends_well(
    receipts: int, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    sleeper = start(mixed, output, tmp_path / "a", processes=2, range_bytes="64Ki", engine="reference")
    wait_for_receipts(output, receipts, sleeper)
    sleeper.signal(signal.SIGSTOP)
    other = start(mixed, output, tmp_path / "b", processes=2, range_bytes="64Ki", engine="reference")
    assert other.wait() == 0, other.errors
    assert difference(output, alone) is None
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait() == 0, sleeper.errors
    require_equal(output, alone)


def test_a_late_run_finds_everything_done_and_changes_nothing(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    a = start(mixed, output, tmp_path / "a", processes=2, range_bytes="64Ki", engine="reference")
    assert a.wait() == 0
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.npy")}
    b = start(mixed, output, tmp_path / "b", processes=1, range_bytes="1Mi", engine="fastokens")
    assert b.wait() == 0
    assert b.events()[-1]["already"] is True
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.npy")} == before
    require_equal(output, alone)


def test_shards_of_a_run_that_has_just_won_the_race_for_the_plan_are_not_foreign(mixed: Corpus, alone: Path) -> None:
    """Between looking for a plan and looking for foreign files the other run may have got as far as its shards."""
    job = make_job(mixed.folder, alone, output=OUTPUT, maxQuarantined=mixed.quarantined)
    refuse_foreign_files(LocalStore(alone), prepare(job))


def test_workers_do_not_outlive_a_killed_driver(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    running = start(mixed, output, tmp_path / "a", processes=3, range_bytes="64Ki", engine="reference")
    wait_for_receipts(output, 1, running)
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait(timeout_s=10) == -9
    again = start(mixed, output, tmp_path / "b", processes=1, range_bytes="64Ki", engine="reference")
    assert again.wait() == 0, again.errors
    require_equal(output, alone)


def test_a_killed_worker_ends_the_run_and_the_same_command_goes_on(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    running = start(mixed, output, tmp_path / "a", processes=3, range_bytes="64Ki", engine="reference")
    wait_for_receipts(output, 1, running)
    receipt = next((output / "_tokenization" / "ledger" / "0" / "ranges").iterdir())
    os.kill(json.loads(receipt.read_bytes())["pid"], signal.SIGKILL)
    assert running.wait() == 5
    assert "WorkerDied" in running.errors
    again = start(mixed, output, tmp_path / "b", processes=1, range_bytes="64Ki", engine="reference")
    assert again.wait() == 0, again.errors
    require_equal(output, alone)
