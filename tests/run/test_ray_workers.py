"""Workers on a Ray cluster that others use, too, or on which they cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from support.faults.ray_nodes import CPUS, Nodes, ray_nodes
from support.places import TESTS
from support.runs import Running, command, difference, make_job
from tokenization_worker.engine.ray import connection as ray_connection
from tokenization_worker.engine.ray import executor as ray_executor
from tokenization_worker.engine.ray import workers as ray_workers
from tokenization_worker.engine.ray.cluster import ANSWER_TIMEOUT_S, slots_of
from tokenization_worker.engine.ray.executor import RayCluster
from tokenization_worker.engine.ray.worker import TaskWorker
from tokenization_worker.engine.ray.workers import RayWorkers
from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import Event, Finished, Warned
from tokenization_worker.processes import WORKER_BYTES
from tokenization_worker.run.run import Options, run_job

pytestmark = pytest.mark.slow

_SOON_S = 0.2


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes that this process is connected to, so that a test can hold CPUs there."""
    with ray_nodes(2) as nodes:
        ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
        try:
            yield nodes
        finally:
            ray.shutdown()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECK_INTERVAL_S", "PATIENCE_S"):
        monkeypatch.setattr(ray_workers, name, _SOON_S)
    # it doubles, up to what a busy machine needs for a start
    monkeypatch.setattr(ray_workers, "MOVE_AFTER_S", 5 * _SOON_S)


def hold(node_id: str) -> Any:
    """All CPUs of a node, by a worker that never gets a task, until it is killed."""
    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    holder: Any = ray.remote(num_cpus=CPUS)(TaskWorker).options(scheduling_strategy=place).remote()
    assert ray.get(holder.is_ready.remote(), timeout=60)
    return holder


def deadline() -> Callable[[], bool]:
    """Stops a run that would wait for ever."""
    end = time.monotonic() + 240
    return lambda: time.monotonic() > end


@pytest.mark.exhaustive
def test_workers_go_where_there_is_room(nodes: Nodes, impatient: None, source: Path, tmp_path: Path) -> None:
    """With `--processes` fewer are asked for than there are CPUs: all of them, it may be, where others are at work."""
    run_job(make_job(source, tmp_path / "alone", tokenizer={"name": "bytes"}), options=Options(processes=1))
    for number, node_id in enumerate(nodes.ids):  # whichever node is asked first, it is held once
        holder = hold(node_id)
        output = tmp_path / f"out{number}"
        job = make_job(source, output, tokenizer={"name": "bytes"})
        with RayCluster(processes=CPUS) as cluster:
            run_job(job, executor=cluster.start, options=Options(processes=CPUS), should_stop=deadline())
        ray.kill(holder)
        assert difference(output, tmp_path / "alone") is None


@pytest.mark.exhaustive
def test_a_run_without_a_worker_says_what_it_waits_for(
    nodes: Nodes, impatient: None, source: Path, tmp_path: Path
) -> None:
    holders = [hold(node_id) for node_id in nodes.ids]
    told: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, Warned):
            told.append(event.message)
            for holder in holders:
                ray.kill(holder)

    with RayCluster() as cluster:
        job = make_job(source, tmp_path / "out", tokenizer={"name": "bytes"})
        finished = run_job(job, executor=cluster.start, on_progress=watch, should_stop=deadline())
    assert isinstance(finished, Finished)
    assert len(told) == 1
    assert f"({2 * CPUS} are asked for on 2 nodes)" in told[0]


def all_started(workers: RayWorkers) -> None:
    """Wait until every worker that was asked for is idle."""
    while workers.count_ready() < 2 * CPUS:
        workers.take_start(*workers.events.get(timeout=180))


def failed_start() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(RuntimeError("no such module"))
    return future


@pytest.mark.exhaustive
def test_starts_that_fail_end_no_run_that_has_had_workers(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over days, on nodes that come and go; the next worker may be able to."""
    monkeypatch.setattr(ray_workers, "_MAX_FAILED_STARTS", 3)
    monkeypatch.setattr(ray_workers, "_REST_S", 0.0)
    with RayCluster() as cluster:
        workers = cluster._connect()
        all_started(workers)
        for _ in range(4):
            for worker in list(workers._all):
                workers.take_start(worker, failed_start())
            workers.fill()
        assert len(workers._all) == 2 * CPUS


@pytest.mark.exhaustive
def test_a_node_on_which_a_worker_could_not_start_rests(nodes: Nodes) -> None:
    with RayCluster() as cluster:
        workers = cluster._connect()
        all_started(workers)
        chosen = workers.idle[0]
        workers.take_start(chosen, failed_start())
        workers.fill()
        assert len(workers._all) == 2 * CPUS - 1
        workers._rests_until.clear()
        workers.fill()
        assert len(workers._all) == 2 * CPUS


@pytest.mark.exhaustive
def test_a_worker_whose_node_is_gone_gets_no_task_when_its_last_one_comes_back(nodes: Nodes) -> None:
    with RayCluster() as cluster:
        workers = cluster._connect()
        all_started(workers)
        [gone, *others] = workers.idle
        workers.kill(gone)
        workers.take_back(gone)
        assert workers.idle == others


@pytest.mark.exhaustive
def test_a_cluster_that_has_no_room_now_is_planned_for_as_one_slot(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RayCluster() as cluster:
        cluster._connect()
        monkeypatch.setattr(ray_executor, "list_nodes", list)
        assert cluster.count_slots() == 1


@pytest.mark.parametrize(
    ("cpus", "memory", "slots"), [(8.0, 3 * WORKER_BYTES + 1, 3), (2.0, 9 * WORKER_BYTES, 2), (8.0, 0, 0)], ids=str
)
def test_a_node_has_a_slot_for_each_cpu_for_which_it_has_memory(cpus: float, memory: float, slots: int) -> None:
    assert slots_of({"Resources": {"CPU": cpus, "memory": memory}}) == slots


def test_the_run_ends_before_ray_ends_it() -> None:
    """Ray ends a process that has had no head for 60 s, without a word to the run."""
    assert ray_workers.HEAD_GONE_S + ray_workers.CHECK_INTERVAL_S + ANSWER_TIMEOUT_S < 60


class _NotThere(TaskWorker):
    """Nodes do not have this module, as if they had another version of the package."""


@pytest.mark.exhaustive
def test_workers_that_cannot_start_end_the_run(
    nodes: Nodes, impatient: None, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_workers, "TaskWorker", _NotThere)
    monkeypatch.setattr(ray_workers, "_MAX_FAILED_STARTS", 5)
    with RayCluster() as cluster, pytest.raises(TemporaryError) as caught:
        run_job(
            make_job(source, tmp_path / "out", tokenizer={"name": "bytes"}),
            executor=cluster.start,
            should_stop=deadline(),
        )
    assert caught.value.reason == "NoWorkers"
    assert "test_ray_workers" in str(caught.value)
    assert "same version" in str(caught.value)


@pytest.mark.exhaustive
def test_a_node_that_is_lost_while_its_workers_start_ends_nothing(
    nodes: Nodes, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_workers, "_MAX_FAILED_STARTS", 1)
    nodes.add()
    with RayCluster() as cluster:
        assert cluster.count_slots() == 3 * CPUS
        nodes.kill_raylet(2)
        job = make_job(source, tmp_path / "out", tokenizer={"name": "bytes"})
        finished = run_job(job, executor=cluster.start, should_stop=deadline())
    assert isinstance(finished, Finished)


@pytest.mark.exhaustive
def test_a_head_that_hangs_from_the_start_is_not_asked_to_end(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own end would wait for its answer, for ever."""
    told: list[bool] = []
    monkeypatch.setattr(ray_executor, "disconnect", lambda *, has_head: told.append(has_head))
    cluster = RayCluster()
    cluster._is_ours = True  # as after it has connected: this process has, before the head hung
    with nodes.hung_head(), pytest.raises(TemporaryError, match="has not answered for 5 s"), cluster:
        cluster.count_slots()
    assert told == [False]


@pytest.mark.exhaustive
def test_no_proxy_is_asked_for_the_way_to_a_cluster(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself asks none, and gRPC would."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    ray_connection.require_reachable(nodes.address)


@pytest.mark.exhaustive
def test_a_node_that_does_not_answer_is_gone_before_ray_says_so(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    with RayCluster() as cluster:
        workers = cluster._connect()
        all_started(workers)
        [first, *_] = workers.idle
        other = next(worker for worker in workers.idle if worker.node_id != first.node_id)

        def count_there() -> int:
            return sum(worker.node_id == first.node_id for worker in workers._all)

        found = [node for node in ray.nodes() if node["Alive"]]
        monkeypatch.setattr(ray_workers, "list_nodes", lambda: found)  # a busy head may take its time
        monkeypatch.setattr(ray_workers, "answers", lambda node: node["NodeID"] != first.node_id)
        assert workers.take_loss(first)
        assert count_there() == 0
        monkeypatch.setattr(ray_workers, "answers", lambda _: True)
        assert not workers.take_loss(other)
        assert count_there() == 0
        workers._gone_until.clear()  # as after a minute
        workers.fill()
        assert count_there() == CPUS


_CLUSTER = """
import sys
from support.faults.ray_nodes import ray_nodes
with ray_nodes(1) as nodes:
    print(nodes.address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.exhaustive
def test_a_cluster_with_a_token_is_joined(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray start` asks for a token where it finds one, also one that another cluster has left."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    home = tmp_path / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 4, encoding="ascii")
    environment = {**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "PYTHONPATH": str(TESTS)}
    pipe = subprocess.PIPE
    job = make_job(source, tmp_path / "out", tokenizer={"name": "bytes"})
    with subprocess.Popen([sys.executable, "-c", _CLUSTER], stdin=pipe, stdout=pipe, env=environment) as cluster:
        assert cluster.stdout is not None
        words = command(job, tmp_path / "job", "--ray-address", cluster.stdout.readline().decode().strip())
        stranger = Running(words, tmp_path / "stranger", HOME=str(tmp_path))
        assert stranger.wait() == 5, stranger.errors
        assert "the cluster requires a token, and this machine has none" in stranger.errors
        assert "RAY_AUTH_TOKEN" in stranger.errors
        asked = Running(words, tmp_path / "asked", HOME=str(tmp_path), RAY_AUTH_MODE="token")
        assert asked.wait() == 5, asked.errors
        assert "NoCluster" in asked.errors
        wrong = Running(words, tmp_path / "wrong", HOME=str(tmp_path), RAY_AUTH_TOKEN="fedcba9876543210" * 4)
        assert wrong.wait() == 5, wrong.errors
        assert "the cluster rejects the token of this machine" in wrong.errors
        running = Running(words, tmp_path / "run", HOME=str(home))
        assert running.wait() == 0, running.errors
