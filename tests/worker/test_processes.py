"""How many worker processes a machine, or a container on it, gets by default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenization_worker.processes import WORKER_BYTES, default_processes


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
