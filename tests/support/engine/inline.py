"""An executor that runs tasks in this process, one after the other: thousands of runs cost no process start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from tokenization_worker import run_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.task import Done, Task, Worker, WorkerState
from tokenization_worker.engine.task_progress import ignore_advance
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.planning.prepare import Prepared

Before = Callable[[Task], None]


class InlineExecutor:
    """Runs a task when somebody waits for it. `before` is called with every task first, and may raise."""

    def __init__(self, before: Before, slots: int) -> None:
        self.slots = slots
        self._before = before
        self._tasks: list[Task] = []
        self._state = WorkerState("here")

    def blocked_reason(self) -> str:
        return ""

    def under_way(self) -> UnderWay:
        return UnderWay(self.slots, self.slots)

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        del worker
        self._tasks.append(task)

    def wait(self, timeout_s: float) -> list[Done]:
        del timeout_s
        return [self._run(self._tasks.pop(0))]

    def _run(self, task: Task) -> Done:
        try:
            self._before(task)
            return Done(task, task.run(self._state, ignore_advance), "here")
        except Exception as error:  # noqa: BLE001  what a pool does: the error is the task's result
            return Done(task, error)

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        del grace_s
        self._tasks.clear()
        return []


def run_with_stops(job: TokenizationJob, *, step: int, before_stop: Before = lambda task: None) -> int:
    """Start a job again and again, as after a kill: the first start may begin one task, each other one `step` tasks
    more than the one before. Returns how many tasks the start that came to the end was allowed. `before_stop` gets the
    task that a start does not begin any more.
    """
    for tasks in count(1, step):
        left = iter(range(tasks))

        def stop(task: Task, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                before_stop(task)
                raise KeyboardInterrupt

        try:
            run_job(job, executor=inline(stop))
        except KeyboardInterrupt:
            continue
        return tasks
    raise AssertionError("count has no end")


def inline(before: Before = lambda task: None, slots: int = 1) -> Callable[[Prepared, RunContext], InlineExecutor]:
    """What `run_job` takes as `executor`."""
    return lambda prepared, context: InlineExecutor(before, slots)
