"""What `run_job` asks of whatever runs its tasks.

Tasks take frozen values and return receipts; what they tell meanwhile is for displays alone. `local` has processes on
this machine, `on_ray` a cluster; both implement the same calls, and their workers call `run_task`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from tokenization_worker.engine.task_progress import Advance, Tell, untold
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.scratch import discard_segments
from tokenization_worker.pipelines.tokenize.decoder_affinity import Worker
from tokenization_worker.pipelines.tokenize.range_task import tokenize_range
from tokenization_worker.pipelines.tokenize.shard_builder import build_shard
from tokenization_worker.pipelines.tokenize.tasks import BuildTask, TokenizeTask
from tokenization_worker.storage.open import open_store

Task = TokenizeTask | BuildTask
Receipt = RangeReceipt | ShardReceipt


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What an executor knows now: workers that have started, workers that it wants, and how far tasks say they are."""

    workers: int
    wanted: int
    advances: tuple[tuple[Task, Advance], ...] = ()


class WorkerLost(Exception):
    """A task's worker is gone, and nothing is known of the task. `with_node`: its whole node is."""

    def __init__(self, detail: str, *, with_node: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.with_node = with_node


@dataclass(frozen=True, slots=True)
class Done:
    """A task's end: its receipt, or the exception that it raised, or `WorkerLost`; `worker`: who has, or had, it."""

    task: Task
    result: Receipt | BaseException
    worker: Worker | None = None


def run_task(task: Task, node: str, tell: Tell = untold) -> Receipt:
    """Run one task in this process, a worker of `node`, after deleting the segments that are spent; `tell` hears how
    far it is."""
    discard_segments(open_store(task.context.data.output.uri), task.context.epoch, task.spent)
    return tokenize_range(task, node, tell) if isinstance(task, TokenizeTask) else build_shard(task, node)


W = TypeVar("W")


def take_idle(idle: list[W], wanted: Worker | None) -> W:
    """Remove `wanted` from those that are idle, or else the last one."""
    return idle.pop(next((number for number, worker in enumerate(idle) if worker is wanted), -1))


class Executor(Protocol):
    """Runs up to `slots` tasks at once; their number may change while it works."""

    @property
    def slots(self) -> int: ...

    def complaint(self) -> str:
        """What it has been waiting for, in words, where that is too long to be silent about; else nothing."""
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
