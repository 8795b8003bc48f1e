"""The same job on a Ray cluster of real nodes: the same bytes, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from support.corpus import Corpus, CorpusWriter, take_documents
from support.engine.inline import inline
from support.faults.ray_nodes import CPUS, Nodes, ray_nodes
from support.places import PROGRAMS
from support.runs import TOKJOB, Held, Running, command, difference, leftovers, make_job, read_index, run_command
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.run.run import Options, run_job

pytestmark = pytest.mark.slow

OUTPUT = {"shards": {"tokens": 20_000}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]}
DEADLINE_S = 120
TWO_WORKERS = ("--processes", "2")
"""A worker takes two seconds of a core to start."""

T = TypeVar("T")


@pytest.fixture(scope="module")
def alone(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the local executor."""
    output = tmp_path_factory.mktemp("alone") / "out"
    job = make_job(mixed.folder, output, output=OUTPUT, maxQuarantined=mixed.quarantined)
    run_job(job, executor=inline())
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


def start_held(mixed: Corpus, output: Path, log: Path, nodes: Nodes, *options: str) -> Held:
    """A run that hands out its first tasks and then stands still until it is waited for."""
    return Held(arguments(mixed, output, log, "--ray-address", nodes.address, *options), log)


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


def count_nodes_of_equal_training(mixed: Corpus, folder: Path, *on_ray: str) -> int:
    """Train here and on Ray, with the same result; the nodes that counted there."""
    flags = ["train", "--source", str(mixed.folder), "--vocab-size", "400,500", "--rangeBytes", "64Ki"]
    flags += ["--tokenizer.layout", "BytesFirst", "--tokenizer.ties", "LargestText"]
    flags += ["--maxQuarantined", str(mixed.quarantined)]
    for name, more in (("here", ("--processes", "1")), ("ray", on_ray)):
        done = run_command([str(TOKJOB), *flags, "--output", str(folder / name), *more])
        assert done.returncode == 0, done.stderr
    exports = [f"{size}/{name}" for size in (400, 500) for name in ("tokenizer.json", "ranks.tiktoken", "merges.txt")]
    for name in (*exports, "counts.npz", "holdout.jsonl.zst", "report.json"):
        assert (folder / "ray" / name).read_bytes() == (folder / "here" / name).read_bytes()
    return len({receipt["node"] for receipt in receipts(folder / "ray", "counted")})


def test_a_training_counts_the_same_on_ray(mixed: Corpus, tmp_path: Path) -> None:
    assert count_nodes_of_equal_training(mixed, tmp_path, "--executor", "ray") == 1


@pytest.mark.exhaustive
def test_a_training_counts_the_same_on_three_nodes(mixed: Corpus, three_nodes: Nodes, tmp_path: Path) -> None:
    assert count_nodes_of_equal_training(mixed, tmp_path, "--ray-address", three_nodes.address) > 1


@dataclass(frozen=True)
class Slow:
    """17 MB that take the reference engine 0.1 s a range and longer, and what the local executor makes of them."""

    folder: Path
    dataset: Path

    def job(self, output: Path) -> TokenizationJob:
        return make_job(self.folder, output, {"output": {"shards": {"tokens": 1_000_000}}, "rangeBytes": "1Mi"})

    def start(self, output: Path, log: Path, nodes: Nodes) -> Held:
        options = ["--json", "--engine", "reference", "--ray-address", nodes.address]
        return Held(command(self.job(output), log.parent / log.name, *options), log)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Slow:
    folder = tmp_path_factory.mktemp("slow")
    corpus = CorpusWriter(folder / "src")
    texts = take_documents(1_200_000)
    for _ in range(14):
        corpus.jsonl(texts)
    made = Slow(corpus.folder, folder / "out")
    run_job(made.job(made.dataset), options=Options(engine="reference"), executor=inline())
    return made


@contextmanager
def stopped_at_work(nodes: Nodes, slow: Slow, output: Path, log: Path) -> Iterator[tuple[Held, dict[str, list[int]]]]:
    """A run of which each node has done a task or is at one, and its workers by node, first one that had a task.

    A node's workers are stopped as soon as that is seen, and the run goes on by one event after each look: so most of
    the work is left for the other nodes, however late their workers start. They go on with the end of the block.
    """
    before = {pid for number in range(len(nodes.ids)) for pid in nodes.workers(number)}  # of a run that has just ended
    running = slow.start(output, log, nodes)

    def started(number: int) -> set[int]:
        return set(nodes.workers(number)) - before

    until(lambda: all(len(started(number)) == CPUS for number in range(len(nodes.ids))), running)
    stopped: dict[str, list[int]] = {}
    try:
        while len(stopped) < len(nodes.ids):
            had_one = {str(done["node"]).rpartition("/")[2]: int(str(done["pid"])) for done in receipts(output)}
            for number, node in enumerate(nodes.ids):
                if busy := nodes.busy_workers(number):
                    had_one[node] = busy[0]
                if node in had_one and node not in stopped:
                    stopped[node] = sorted(started(number), key=lambda pid: pid != had_one[node])
                    for pid in stopped[node]:
                        os.kill(pid, signal.SIGSTOP)
            running.wait_for_event()
        yield running, stopped
    finally:
        for pid in chain.from_iterable(stopped.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.exhaustive
def test_every_node_does_its_part_and_the_bytes_are_the_local_executors(
    three_nodes: Nodes, slow: Slow, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with stopped_at_work(three_nodes, slow, output, tmp_path / "run") as (running, _):
        pass
    assert running.wait() == 0, running.errors
    require_equal(output, slow.dataset)
    done = receipts(output) + receipts(output, "shards")
    assert {str(receipt["node"]).rpartition("/")[2] for receipt in done} == set(three_nodes.ids)
    pids = {receipt["pid"] for receipt in done}
    assert len(pids) >= len(three_nodes.ids)
    assert not pids & {0, running.process.pid}


@pytest.mark.exhaustive
def test_the_work_of_killed_workers_is_done_again(three_nodes: Nodes, slow: Slow, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with stopped_at_work(three_nodes, slow, output, tmp_path / "run") as (running, workers):
        ranges = next(event["ranges"] for event in running.events() if event["event"] == "planned")
        running.release()
        victims = [first for first, *_ in workers.values()]
        for _, *others in workers.values():
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        # All that the others can do: each of those that stand still has a task by now.
        until(lambda: len(receipts(output)) >= ranges - len(victims), running)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
    assert running.wait() == 0, running.errors
    require_equal(output, slow.dataset)
    assert sum("lost" in event.get("message", "") for event in running.events()) == 3


def test_a_killed_driver_is_started_again_and_goes_on(
    three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "first", three_nodes, *TWO_WORKERS)
    running.wait_for_ranges(3)
    running.kill()
    kept = len(receipts(output))
    assert not (output / "index.json").exists()
    again = start(mixed, output, tmp_path / "again", "--ray-address", three_nodes.address, *TWO_WORKERS)
    assert again.wait() == 0, again.errors
    assert [event["ranges_done"] >= kept for event in again.events() if event["event"] == "resumed"] == [True]
    require_equal(output, alone)


@pytest.fixture(scope="module")
def head() -> Iterator[Nodes]:
    """A head without CPUs. What tests leave of it: the one that kills it is the last one."""
    with ray_nodes(1, head_cpus=0) as nodes:
        yield nodes


@pytest.fixture
def one_node(head: Nodes) -> Nodes:
    """A head without CPUs and a node that is there to be killed."""
    if len(head.ids) == 1:
        head.add()
    return head


@pytest.mark.exhaustive
def test_a_run_that_has_lost_all_its_nodes_goes_on_with_a_new_one(
    one_node: Nodes, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "run", one_node)
    until(partial(one_node.busy_workers, 1), running)
    one_node.kill_raylet(1)
    new = one_node.add()
    assert running.wait() == 0, running.errors
    require_equal(output, alone)
    warnings = [event["message"] for event in running.events() if event["event"] == "warned"]
    lost = [words for words in warnings if "is retried" in words]
    assert lost
    assert all("lost its node" in words for words in lost), lost  # although Ray believes in it for a while
    assert any(str(receipt["node"]).endswith(new) for receipt in receipts(output) + receipts(output, "shards"))


def hasty(mixed: Corpus, folder: Path, nodes: Nodes) -> Held:
    """A run that has workers of its own by now: those of the run before may still be there."""
    before = set(nodes.workers(1))
    _, _, *words = arguments(mixed, folder / "out", folder / "run", "--ray-address", nodes.address)
    running = Held([sys.executable, str(PROGRAMS / "hasty_run.py"), *words], folder / "run")
    until(lambda: set(nodes.workers(1)) - before, running)
    return running


@pytest.mark.exhaustive
def test_a_run_whose_cluster_has_a_head_that_hangs_says_so(one_node: Nodes, mixed: Corpus, tmp_path: Path) -> None:
    running = hasty(mixed, tmp_path, one_node)
    with one_node.hung_head():
        one_node.kill_raylet(1)  # or its workers would do all that is left
        require_no_cluster(running)


@pytest.mark.exhaustive
def test_a_run_whose_cluster_has_lost_its_head_says_so(one_node: Nodes, mixed: Corpus, tmp_path: Path) -> None:
    """Ray by itself would end the driver after 60 s, with its own words and exit code 1."""
    running = hasty(mixed, tmp_path, one_node)
    one_node.kill_head()
    one_node.kill_raylet(1)
    require_no_cluster(running)


@pytest.mark.exhaustive
def test_a_run_whose_machine_is_no_node_any_more_says_so(mixed: Corpus, tmp_path: Path) -> None:
    """Ray would start no worker for it, also where others come."""
    with ray_nodes(1) as nodes:
        running = start_held(mixed, tmp_path / "out", tmp_path / "run", nodes)
        until(partial(nodes.busy_workers, 0), running)
        nodes.kill_raylet(0)
        require_no_cluster(running)
    assert "the Ray node of this machine" in running.errors


def require_no_cluster(running: Held) -> None:
    assert running.wait() == 5, running.errors
    assert "NoCluster" in running.errors
    assert "finished work is kept" in running.errors
    assert "Traceback" not in running.errors


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray of this test keeps its files, also which cluster this machine is part of: none so far."""
    with TemporaryDirectory(prefix="ray-") as folder:  # a short name: Ray's sockets lie there
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def nodes_of(output: Path) -> set[str]:
    return {str(receipt["node"]).rpartition("/")[2] for receipt in receipts(output)}


@pytest.mark.exhaustive
def test_without_a_cluster_there_is_one_for_the_run(
    three_nodes: Nodes, ray_folder: Path, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    """A cluster that was killed is none; others on this machine, which nobody has made it part of, are left alone."""
    (ray_folder / "ray").mkdir()
    (ray_folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1\n", encoding="utf-8")
    output = tmp_path / "out"
    running = start(mixed, output, tmp_path / "run", "--processes", "2")
    assert running.wait() == 0, running.errors  # and nothing of Ray outlives it
    assert running.errors == ""
    assert nodes_of(output).isdisjoint(three_nodes.ids)
    require_equal(output, alone)


@pytest.mark.exhaustive
def test_the_cluster_that_this_machine_is_part_of_is_used(
    three_nodes: Nodes, ray_folder: Path, mixed: Corpus, alone: Path, tmp_path: Path
) -> None:
    (ray_folder / "ray").mkdir()
    (ray_folder / "ray" / "ray_current_cluster").write_text(three_nodes.address, encoding="utf-8")
    output = tmp_path / "out"
    running = start(mixed, output, tmp_path / "run", *TWO_WORKERS)
    assert running.wait() == 0, running.errors
    assert nodes_of(output) <= set(three_nodes.ids)
    require_equal(output, alone)


@pytest.mark.exhaustive
def test_a_signal_stops_in_order(three_nodes: Nodes, mixed: Corpus, alone: Path, tmp_path: Path) -> None:
    """SIGTERM, which Ray would take for itself."""
    output = tmp_path / "out"
    running = start_held(mixed, output, tmp_path / "run", three_nodes, *TWO_WORKERS)
    running.wait_for_ranges(1)
    running.signal(signal.SIGTERM)
    assert running.wait() == 128 + signal.SIGTERM, running.errors
    assert "the same command continues" in running.errors.lower()
    again = start(mixed, output, tmp_path / "again", "--ray-address", three_nodes.address, *TWO_WORKERS)
    assert again.wait() == 0, again.errors
    require_equal(output, alone)


@pytest.mark.parametrize(
    ("address", "code", "reason"),
    [
        ("127.0.0.1:1", 5, "NoCluster"),
        ("somewhere", 2, "SpecInvalid"),
        ("ray://head:10001", 2, "SpecInvalid"),
        ("127.0.0.1:99999", 2, "SpecInvalid"),
        ("", 2, "SpecInvalid"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(
    address: str, code: int, reason: str, mixed: Corpus, tmp_path: Path
) -> None:
    job = make_job(mixed.folder, tmp_path / "out", output=OUTPUT)
    ended = run_command(command(job, tmp_path / "job", "--ray-address", address, "--processes", "2"))
    assert ended.returncode == code
    assert not (tmp_path / "out").exists(), "refused before a plan is written"
    assert reason in ended.stderr
    assert address in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_where_something_else_listens_is_no_cluster(mixed: Corpus, tmp_path: Path) -> None:
    """Ray would try for minutes, deaf to signals."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        job = make_job(mixed.folder, tmp_path / "out", output=OUTPUT)
        ended = run_command(command(job, tmp_path / "job", "--ray-address", address))
        server.shutdown()
    assert ended.returncode == 5
    assert f"cannot connect to the Ray cluster at {address}: the server at this address is not the head" in ended.stderr
