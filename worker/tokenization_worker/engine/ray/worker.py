"""One worker on a Ray cluster: its process, and the driver's handle of it.

It is an actor: a process that holds from task to task what tasks keep there.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray

from tokenization_worker.engine.task import Task, WorkerState
from tokenization_worker.engine.task_progress import Advance, EverySecond
from tokenization_worker.errors import portable
from tokenization_worker.events import Receipt
from tokenization_worker.storage.open import open_store


class TaskWorker:
    """Lives in a process of the cluster and runs a task at a time."""

    def is_ready(self) -> bool:
        """Answers once the process is there, with all that tasks need imported."""
        return True

    def __init__(self) -> None:
        self._advance: Advance | None = None
        self._state = WorkerState(f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()}")

    def advance(self) -> Advance | None:
        """How far the task is that runs now; called while it does, in a thread of its own."""
        return self._advance

    def run(self, task: Task) -> Receipt:
        """One task; afterwards the process may be idle until the cluster ends."""
        try:
            return task.run(self._state, EverySecond(partial(setattr, self, "_advance")))
        except Exception as error:  # noqa: BLE001  the driver's to raise
            raise portable(error)  # noqa: B904  usually the same one
        finally:
            self._advance = None
            open_store(task.output_uri).close_own_scratch()


@dataclass(eq=False, slots=True)
class RayWorker:
    """A `TaskWorker` and the node that it was asked for on."""

    handle: Any
    node_id: str
    asked_at: float
