"""What `run_job` asks of whatever runs its tasks.

Tasks take frozen values and return receipts; they never call back. `local` is a process pool on this
machine; a cluster implements the same three calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tokenization_worker.context import BuildTask, TokenizeTask
from tokenization_worker.receipts import RangeReceipt, ShardReceipt

Task = TokenizeTask | BuildTask
Receipt = RangeReceipt | ShardReceipt


@dataclass(frozen=True, slots=True)
class Done:
    """A task's end: its receipt, or the exception that it raised."""

    task: Task
    result: Receipt | BaseException


class Executor(Protocol):
    """Runs up to `slots` tasks at once."""

    slots: int

    def submit(self, task: Task) -> None: ...

    def wait(self, timeout_s: float) -> list[Done]:
        """Tasks that ended, at least one unless `timeout_s` passes first."""
        ...

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        """Stop: wait up to `grace_s` for running tasks, then end their processes; what ended meanwhile."""
        ...
