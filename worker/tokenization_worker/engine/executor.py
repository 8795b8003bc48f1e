"""The executor protocol: how the engine starts tasks and gets their receipts.

Tasks take frozen values and return receipts; what they tell meanwhile is for displays alone. `local` has processes on
this machine, `ray` a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from tokenization_worker.engine.task import Done, Task, Worker
from tokenization_worker.engine.task_progress import Advance


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What an executor knows now: workers that have started, workers that it wants, and how far tasks say they are."""

    workers: int
    wanted: int
    advances: tuple[tuple[Task, Advance], ...] = ()


W = TypeVar("W")


def take_idle(idle: list[W], wanted: Worker | None) -> W:
    """Remove `wanted` from those that are idle, or else the last one."""
    return idle.pop(next((number for number, worker in enumerate(idle) if worker is wanted), -1))


class Executor(Protocol):
    """Runs up to `slots` tasks at once; their number may change while it works."""

    @property
    def slots(self) -> int: ...

    def blocked_reason(self) -> str:
        """What it has waited for too long to be silent about, in words; else nothing."""
        ...

    def under_way(self) -> UnderWay:
        """What is known now, without a call or a wait."""
        ...

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        """Begin a task, where `worker` is idle there: what it has at hand from its last task may serve this one."""
        ...

    def wait(self, timeout_s: float) -> list[Done]:
        """Tasks that ended; none if `timeout_s` passes first, or if workers have only told how far they are."""
        ...

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        """Stop: wait up to `grace_s` for running tasks, then end their processes; what ended meanwhile."""
        ...
