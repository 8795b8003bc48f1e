"""The task protocol: a worker runs a task, and the task gives a receipt and describes its product."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tokenization_worker.engine.task_progress import OnAdvance
from tokenization_worker.events import Receipt

Worker = Hashable
"""Whatever an executor knows a worker by."""

T = TypeVar("T")


@dataclass(slots=True)
class WorkerState:
    """What a worker keeps from task to task. Each worker has its own, and passes it to every task.

    `node`: the machine, as receipts name it.
    """

    node: str
    _kept: dict[type[Any], Any] = field(default_factory=dict)

    def keep(self, kind: type[T]) -> T:
        """The object of type `kind` that tasks keep in this worker; the first call makes it, without arguments."""
        if kind not in self._kept:
            self._kept[kind] = kind()
        found: T = self._kept[kind]
        return found


class Task(Protocol):
    """A unit of work: a frozen value that can be pickled.

    `product`: what it makes, in words that tell it from every other task's product. `output_uri`: where it writes.
    """

    @property
    def product(self) -> str: ...

    @property
    def output_uri(self) -> str: ...

    def run(self, worker: WorkerState, on_advance: OnAdvance) -> Receipt:
        """Do it; returns the receipt that counts, which may be another writer's. `on_advance` learns how far it is.

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
