"""Asks Ray workers for the progress of their tasks, without waiting for the answers.

The question goes from the driver to the worker's process, not through the cluster's head. A worker answers it in a
thread of its own, between two batches of its task.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from tokenization_worker.engine.ray.worker import RayWorker
from tokenization_worker.engine.task import Task
from tokenization_worker.engine.task_progress import INTERVAL_S, Advance

ADVANCES = "advances"
"""The concurrency group of the question."""

_MOST_A_SECOND = 200
"""Questions: each costs the driver 0.3 ms (2026-11-23), and with more workers than that each is asked less often."""


class RayAdvances:
    """What workers have answered, each about the task that it had when it was asked."""

    def __init__(self) -> None:
        self._asked: dict[RayWorker, tuple[Task, Future[Any]]] = {}
        self._known: dict[RayWorker, tuple[Task, Advance]] = {}
        self._ask_at = 0.0

    def ask(self, running: Mapping[RayWorker, Task]) -> None:
        """Ask all that have a task and no question open, where the last time is long enough ago."""
        self._take_answers()
        now = time.monotonic()
        if now < self._ask_at:
            return
        self._ask_at = now + max(INTERVAL_S, len(running) / _MOST_A_SECOND)
        for worker, task in running.items():
            if worker not in self._asked:
                question = worker.handle.advance.options(concurrency_group=ADVANCES).remote()
                self._asked[worker] = (task, question.future())

    def _take_answers(self) -> None:
        for worker, (task, answer) in list(self._asked.items()):
            if not answer.done():
                continue
            del self._asked[worker]
            if answer.exception() is None and (advance := answer.result()) is not None:
                self._known[worker] = (task, advance)

    def of(self, running: Mapping[RayWorker, Task]) -> Iterator[tuple[Task, Advance]]:
        """The tasks that are `running`, with what is known of them. What was said of an earlier one is forgotten."""
        for worker, (task, advance) in list(self._known.items()):
            if running.get(worker) is task:
                yield task, advance
            else:
                del self._known[worker]
