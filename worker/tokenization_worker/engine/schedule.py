"""The schedule protocol: what the engine asks of a pipeline."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.task import ProductLost, Task, Worker, WorkerLost
from tokenization_worker.events import Event, Receipt


class Schedule(Protocol):
    """What is done, what is under way, and what can start now. Decides; does no I/O and runs nothing."""

    @property
    def is_finished(self) -> bool: ...

    def next_task(self, *, worker: Worker | None, busy: int, slots: int) -> Task | None:
        """The most useful task that can start now; `worker` will get it, if known. `busy` of the `slots` have one."""
        ...

    def done(self, task: Task, receipt: Receipt, worker: Worker | None) -> None:
        """A task's product and receipt are there; `worker` is who has done it now."""
        ...

    def product_lost(self, task: Task, loss: ProductLost) -> bool:
        """A task waits until what it needs is made again. Whether this loss was not known before."""
        ...

    def worker_lost(self, task: Task, loss: WorkerLost, times: int, worker: Worker | None) -> None:
        """Hand a task out again whose worker is gone, or its whole node. `times`: how often that was so."""
        ...

    def take_releasable(self) -> Iterable[Hashable]:
        """The scratch products that are there and nobody needs any more, each once."""
        ...


class Pipeline(Protocol):
    """A run of some kind: its schedule, and the I/O of its driver."""

    @property
    def schedule(self) -> Schedule: ...

    def require_within_limits(self) -> None:
        """Raise the error of a run that cannot end well, whatever is still to be done."""
        ...

    def prepare(self, task: Task) -> Task:
        """The task as it is handed out: told what only the moment knows."""
        ...

    def find_receipt(self, task: Task) -> Receipt | None:
        """The receipt of a concurrent run that has made the task's product, as long as that is there.

        Scratch that a receipt tells of may be gone: then there is nothing to be found, and the task runs again.
        """
        ...

    def discard(self, loss: ProductLost) -> None:
        """Remove the torn product that was found, and no other that was written since."""
        ...

    def release(self, products: Iterable[Hashable]) -> None:
        """Remove scratch that nobody needs any more."""
        ...

    def error_of(self, error: BaseException) -> BaseException:
        """What ends the run where a task has raised `error`."""
        ...

    def warnings_of(self, task: Task, receipt: Receipt) -> Iterable[str]:
        """What a user should know of a task's end."""
        ...

    def progress(self, receipt: Receipt | None) -> Event:
        """How far the run is, after a receipt or at the start."""
        ...

    def advanced(self, state: UnderWay) -> Event:
        """How far the run is, with the parts of tasks that are under way."""
        ...
