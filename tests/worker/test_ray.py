"""The same job on a Ray cluster of real nodes: the same bytes, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from corpus import Corpus
from ray_nodes import CPUS, Nodes, ray_nodes
from runs import Held, Running, command, difference, leftovers, make_job, read_index, run_command

from tokenization_worker.run import Options, run_job

OUTPUT = {"shards": {"tokens": 20_000}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]}
DEADLINE_S = 120
T = TypeVar("T")


@pytest.fixture(scope="module")
def alone(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the local executor."""
    output = tmp_path_factory.mktemp("alone") / "out"
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined)
    run_job(job, options=Options(processes=2))
    return output


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Nodes]:
    with ray_nodes(3) as nodes:
        yield nodes


def arguments(mixed: Corpus, output: Path, log: Path, *options: str) -> list[str]:
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined, rangeBytes="64Ki")
    return command(job, log.parent / log.name, "--json", "--executor", "ray", *options)


def start(mixed: Corpus, output: Path, log: Path, *options: str) -> Running:
    return Running(arguments(mixed, output, log, *options), log)


def start_held(mixed: Corpus, output: Path, log: Path, nodes: Nodes) -> Held:
    """A run that hands out its first tasks and then stands still until it is waited for."""
    return Held(arguments(mixed, output, log, "--ray-address", nodes.address), log)


def require_equal(output: Path, alone: Path) -> None:
    assert difference(output, alone) is None
    assert read_index(output)["digest"] == read_index(alone)["digest"]
    assert leftovers(output) == []


def receipts(output: Path, kind: str = "ranges") -> list[dict[str, object]]:
    folder = output / "_tokenization" / "ledger" / "0" / kind
    return [json.loads(path.read_bytes()) for path in folder.rglob("*.json")]


def until(condition: Callable[[], T], running: Running) -> T:
    """What `condition` returns, once that is something."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert not running.has_ended, running.errors
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def test_every_node_does_its_part_and_the_bytes_are_the_local_executors(
    three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "run", three_nodes)
    until(lambda: len(receipts(output)) >= 3 * CPUS, running)  # the first node to start its workers would do it all
    assert running.wait() == 0, running.errors
    require_equal(output, alone)
    done = receipts(output) + receipts(output, "shards")
    assert {str(receipt["node"]).rpartition("/")[2] for receipt in done} == set(three_nodes.ids)


def test_the_work_of_a_killed_worker_is_done_again(
    three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "run", three_nodes)
    for number in range(3):
        worker, *_ = until(partial(three_nodes.busy_workers, number), running)
        os.kill(worker, signal.SIGKILL)
    assert running.wait() == 0, running.errors
    require_equal(output, alone)
    assert any("lost" in event.get("message", "") for event in running.events())


def test_a_killed_driver_is_started_again_and_goes_on(
    three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "first", three_nodes)
    running.wait_for_ranges(3)
    running.kill()
    kept = len(receipts(output))
    assert not (output / "index.json").exists()
    again = start(mixed, output, tmp_path / "again", "--ray-address", three_nodes.address)
    assert again.wait() == 0, again.errors
    assert [event["ranges_done"] >= kept for event in again.events() if event["event"] == "resumed"] == [True]
    require_equal(output, alone)


def test_nodes_come_and_go_during_a_run(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with ray_nodes(2) as nodes:
        running = start_held(mixed, output, tmp_path / "run", nodes)
        until(partial(nodes.busy_workers, 1), running)
        nodes.kill_raylet(1)
        new = nodes.add()
        assert running.wait() == 0, running.errors
    require_equal(output, alone)
    assert any(str(receipt["node"]).endswith(new) for receipt in receipts(output) + receipts(output, "shards"))


def test_without_a_cluster_there_is_one_for_the_run(mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    running = start(mixed, output, tmp_path / "run", "--processes", "2")
    assert running.wait() == 0, running.errors  # and nothing of Ray outlives it
    assert running.errors == ""
    require_equal(output, alone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_order(
    number: signal.Signals, three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "run", three_nodes)
    running.wait_for_ranges(1)
    running.signal(number)
    assert running.wait() == 128 + number, running.errors
    assert "the same command goes on" in running.errors.lower()
    again = start(mixed, output, tmp_path / "again", "--ray-address", three_nodes.address)
    assert again.wait() == 0, again.errors
    require_equal(output, alone)


@pytest.mark.parametrize(
    ("address", "code", "reason"),
    [("127.0.0.1:1", 5, "NoCluster"), ("somewhere", 2, "SpecInvalid"), ("ray://head:10001", 2, "SpecInvalid")],
)
def test_a_cluster_that_is_not_there_is_named(
    address: str, code: int, reason: str, mixed: Corpus, tmp_path: Path
) -> None:
    job = make_job(mixed.folder, tmp_path / "out", output=OUTPUT)
    ended = run_command(command(job, tmp_path / "job", "--ray-address", address))
    assert ended.returncode == code
    assert reason in ended.stderr
    assert address in ended.stderr
    assert "Traceback" not in ended.stderr
