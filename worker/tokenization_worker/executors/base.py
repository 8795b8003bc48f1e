"""What `run_job` asks of whatever runs its tasks.

Tasks take frozen values and return receipts; they never call back. `local` is a process pool on this
machine, `on_ray` a cluster; both implement the same three calls, and their workers call `run_task`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tokenization_worker.build import build_shard
from tokenization_worker.context import BuildTask, TokenizeTask
from tokenization_worker.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.tokenize import tokenize_range

Task = TokenizeTask | BuildTask
Receipt = RangeReceipt | ShardReceipt


class WorkerLost(Exception):
    """A task's worker is gone, and nothing is known of the task. `with_node`: its whole node is."""

    def __init__(self, detail: str, *, with_node: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.with_node = with_node


@dataclass(frozen=True, slots=True)
class Done:
    """A task's end: its receipt, or the exception that it raised, or `WorkerLost`."""

    task: Task
    result: Receipt | BaseException


def run_task(task: Task, node: str) -> Receipt:
    """Run one task in this process, a worker of `node`."""
    return tokenize_range(task, node) if isinstance(task, TokenizeTask) else build_shard(task, node)


class Executor(Protocol):
    """Runs up to `slots` tasks at once; their number may change while it works."""

    @property
    def slots(self) -> int: ...

    def submit(self, task: Task) -> None: ...

    def wait(self, timeout_s: float) -> list[Done]:
        """Tasks that ended, at least one unless `timeout_s` passes first."""
        ...

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        """Stop: wait up to `grace_s` for running tasks, then end their processes; what ended meanwhile."""
        ...
