"""How many worker processes a machine, or a container on it, gets by default; signals while they start."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenization_worker import processes
from tokenization_worker.engine import local
from tokenization_worker.processes import WORKER_BYTES, compute_in_copy, default_processes, start_method
from tokenization_worker.verification import workers


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 cores and memory for 32 workers."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    numbers = {"SC_PHYS_PAGES": 32 * WORKER_BYTES // 3 * 4 // 4096 + 1, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", lambda name: numbers[name])


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 32),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, 32),
        ({"cpu.max": "350000 100000\n", "memory.max": "max\n"}, 3),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"memory.max": f"{8 * WORKER_BYTES}\n"}, 6),
        ({"memory.max": "1000000\n"}, 1),
        ({"cpu.max": "", "memory.max": ""}, 32),
    ],
    ids=["no-container", "no-limits", "cpu", "half-a-cpu", "memory", "little-memory", "empty"],
)
@pytest.mark.usefixtures("machine")
def test_as_many_processes_as_machine_and_container_have_room_for(
    limits: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    assert default_processes(tmp_path) == expected


@pytest.mark.usefixtures("machine")
def test_tasks_that_need_more_memory_get_fewer_processes(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{8 * WORKER_BYTES}\n")
    assert default_processes(tmp_path, task_bytes=2 * WORKER_BYTES) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
def test_only_a_process_without_threads_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has the locks of threads, and not the threads."""
    for threads, method in ((1, "fork"), (2, "spawn")):
        monkeypatch.setattr(processes.threading, "active_count", lambda threads=threads: threads)
        assert start_method(may_fork=True).get_start_method() == method
        assert start_method(may_fork=False).get_start_method() == "spawn"


def _larger(one: Any, other: int, on_advance: object) -> int:
    return max(one, other)


@pytest.fixture
def answered(tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """The processes that answered SIGINT by the handler of this one; a fork has a copy of it."""
    log = tmp_path / "answered"
    log.touch()

    def answer(*_: object) -> None:
        with log.open("a") as lines:
            lines.write(f"{os.getpid()}\n")

    before = signal.signal(signal.SIGINT, answer)
    yield lambda: [int(line) for line in log.read_text().split()]
    signal.signal(signal.SIGINT, before)


def interrupted_before(begin: Callable[..., Any]) -> Callable[..., Any]:
    """`begin` in a process that is sent SIGINT before its first line, with the process that started it."""

    def interrupted(*arguments: object) -> Any:
        for process in (os.getpid(), os.getppid()):
            os.kill(process, signal.SIGINT)
        return begin(*arguments)

    return interrupted


def test_ctrl_c_while_a_worker_starts_is_answered_by_its_driver_alone(
    answered: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "begin_worker", interrupted_before(local.begin_worker))
    local.LocalExecutor(2, fork=True).close()
    assert answered() in ([os.getpid()], [os.getpid()] * 2)


def test_ctrl_c_while_a_spawned_worker_starts_does_not_end_it() -> None:
    executor = local.LocalExecutor(1, fork=False)
    process = executor._all[0]._process
    os.kill(process.pid, signal.SIGINT)
    executor.close()
    assert process.exitcode == 0


def test_ctrl_c_while_a_copy_starts_is_answered_by_the_original_alone(
    answered: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_send_result", interrupted_before(processes._send_result))
    assert compute_in_copy(os.getpid) != os.getpid()
    assert answered() == [os.getpid()]


def test_ctrl_c_while_a_verifier_starts_is_answered_by_the_command_alone(
    answered: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "begin_worker", interrupted_before(workers.begin_worker))
    assert sorted(workers.run_all(_larger, 5, [4, 6], processes=2, may_fork=True)) == [(0, 5), (1, 6)]
    assert set(answered()) == {os.getpid()}
