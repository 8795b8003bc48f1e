"""What the engine knows of a task: a worker runs it, it gives a receipt, and it can say what it makes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenization_worker.engine.task_progress import Tell
from tokenization_worker.readers.resumable_decoder import SetAside

Worker = Hashable
"""Whatever an executor knows a worker by."""


@dataclass(slots=True)
class WorkerState:
    """What a worker keeps from task to task. Each worker has its own, and passes it to every task.

    `node`: the machine, as receipts name it. `decoder`: of a compressed file, set aside for the file's next part.
    """

    node: str
    decoder: SetAside = field(default_factory=SetAside)


class Receipt(Protocol):
    """The durable record that a task's product is there."""

    def to_dict(self) -> dict[str, Any]: ...


class Task(Protocol):
    """A unit of work: a frozen value that can be pickled.

    `product`: what it makes, in words, such as `range 17 (gs://bucket/a.jsonl)`. `output_uri`: where it writes.
    """

    @property
    def product(self) -> str: ...

    @property
    def output_uri(self) -> str: ...

    def run(self, worker: WorkerState, tell: Tell) -> Receipt:
        """Do it; returns the receipt that counts, which may be another writer's. `tell` hears how far it is.

        Raises `ProductLost` where scratch that it needs is missing or torn.
        """
        ...


class ProductLost(Exception):
    """Scratch that a task needs is missing, cut or torn. Its `product` must be made again before the task can be done.

    `product`: as the pipeline knows it. `version`: which object was bad; None where there was none.
    """

    def __init__(self, product: Hashable, detail: str, version: str | None = None) -> None:
        super().__init__(product, detail, version)
        self.product = product
        self.detail = detail
        self.version = version


class WorkerLost(Exception):
    """A task's worker is gone, and nothing is known of the task. `with_node`: its whole node is."""

    def __init__(self, detail: str, *, with_node: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.with_node = with_node

    @property
    def lost(self) -> str:
        """`node` or `worker`."""
        return "node" if self.with_node else "worker"


@dataclass(frozen=True, slots=True)
class Done:
    """A task's end: its receipt, or the exception that it raised, or `WorkerLost`; `worker`: who has, or had, it."""

    task: Task
    result: Receipt | BaseException
    worker: Worker | None = None
