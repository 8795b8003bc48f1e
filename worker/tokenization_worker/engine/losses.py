"""Counts how often tasks lose their workers, and decides when that is too often. Pure."""

from __future__ import annotations

from collections import Counter

from tokenization_worker.engine.task import Task, WorkerLost
from tokenization_worker.errors import WorkerDied

_MAX_CRASHES = 3
_MAX_NODES_LOST = 20
"""How often one task may lose its worker, and how often its node with everything on it: a node that is taken away
says nothing of the task, but a task may also take its node's memory."""

_CRASHES = ("killed by SIGABRT", "killed by SIGSEGV", "killed by SIGBUS")
"""The signals by which a library ends the process that calls it."""

_SHORT = "check the memory of the workers and the nodes, then start the same command again"
_CRASHED = (
    "a library crashed, most likely on what this task reads: for a range, run a job on each of its files alone; write "
    "the file at fault again, or leave it out of the source"
)


class Losses:
    """The losses of a run, by what the tasks were to make."""

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, bool]] = Counter()

    def count(self, task: Task, loss: WorkerLost) -> int:
        """How often what the task makes has lost its worker, or its node, this time included.

        Raises `WorkerDied` when that is too often.
        """
        self._lost[task.product, loss.with_node] += 1
        times = self._lost[task.product, loss.with_node]
        if times >= (_MAX_NODES_LOST if loss.with_node else _MAX_CRASHES):
            raise WorkerDied(
                "WorkerDied",
                f"{task.product} lost its {loss.lost} {times} times: {loss.detail}",
                next_step=_CRASHED if loss.detail.endswith(_CRASHES) else _SHORT,
            )
        return times
