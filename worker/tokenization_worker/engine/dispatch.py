"""Runs a pipeline: hands out its tasks, takes their receipts, until nothing is left to do.

The pipeline's schedule decides, an executor runs, and this loop carries values between them. It stops for a signal, for
an error of a task, and as soon as the pipeline says that the run cannot end well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenization_worker.engine.executor import Executor, UnderWay
from tokenization_worker.engine.losses import Losses
from tokenization_worker.engine.schedule import Pipeline
from tokenization_worker.engine.task import Done, ProductLost, Task, Worker, WorkerLost
from tokenization_worker.errors import WorkerDied
from tokenization_worker.events import Event, Receipt, WaitingForWorkers, Warned, Watcher

POLL_S = 0.2
INTERVAL_S = 1.0
"""From one event that tells how far the run is to the next."""

STOP_GRACE_S = 10.0
"""How long running tasks may take to write their receipts after a stop; Kubernetes kills after 30 s."""


class Stopped(Exception):
    """The run was asked to stop; its receipts are written and the same command goes on."""


def run_pipeline(
    pipeline: Pipeline, start_executor: Callable[[], Executor], watch: Watcher, should_stop: Callable[[], bool]
) -> None:
    """Do every task of a pipeline. Raises `Stopped`, and what its tasks and limits raise."""
    if finish_if_done(pipeline):
        return
    executor = start_executor()
    try:
        _Dispatch(pipeline, executor, watch, should_stop).run()
    except Stopped:
        executor.close(grace_s=STOP_GRACE_S)
        raise
    except WorkerDied as error:
        if should_stop():  # the signal went to the whole process group
            raise Stopped from error
        raise
    finally:
        executor.close()


def finish_if_done(pipeline: Pipeline) -> bool:
    """Whether no task is left; deletes the scratch that a stop after the last task left. Raises what limits raise."""
    if pipeline.schedule.is_finished:
        pipeline.release(pipeline.schedule.take_releasable())
        return True
    pipeline.require_within_limits()
    return False


class _Dispatch:
    """The loop, and what it counts."""

    def __init__(self, pipeline: Pipeline, executor: Executor, watch: Watcher, should_stop: Callable[[], bool]) -> None:
        self._pipeline = pipeline
        self._schedule = pipeline.schedule
        self._executor = executor
        self._watch = watch
        self._should_stop = should_stop
        self._losses = Losses()
        self._in_flight = 0
        self._idle: list[Worker] = []  # those that have just ended a task
        self._has_warned = False
        self._ticks = Ticks(pipeline.advanced, executor, watch)

    def run(self) -> None:
        """Keep every slot busy until nothing is left to do."""
        self._watch(self._pipeline.progress(None))
        self._ticks.tick()
        while not self._should_stop():
            self._hand_out()
            if not self._in_flight:
                assert self._schedule.is_finished, "no task is ready and none is running, but the run is not finished"
                self._pipeline.release(self._schedule.take_releasable())
                return
            self._idle.clear()
            if not self._has_warned and (reason := self._executor.blocked_reason()):
                self._has_warned = True
                self._watch(Warned(reason))
            for done in self._executor.wait(POLL_S):
                self._in_flight -= 1
                receipt = self._take(done)
                if done.worker is not None and not isinstance(done.result, WorkerLost):
                    self._idle.append(done.worker)
                self._watch(self._pipeline.progress(receipt))
            self._ticks.tick()
            self._pipeline.require_within_limits()
        raise Stopped

    def _hand_out(self) -> None:
        """Give a task to every slot that has none, as long as there are any."""
        while self._in_flight < (slots := self._executor.slots):
            worker = self._idle.pop() if self._idle else None
            task = self._schedule.next_task(worker=worker, busy=self._in_flight, slots=slots)
            if task is None:
                return
            self._executor.submit(self._pipeline.prepare(task), worker)
            self._in_flight += 1

    def _take(self, done: Done) -> Receipt | None:
        """Book a task's end and return its receipt (None where it must run again), or raise its error."""
        match done.result:
            case WorkerLost() as loss:
                self._take_worker_loss(done, loss)
                return None
            case MemoryError():  # of a process that lives still, but for the task it is as good as dead
                self._take_worker_loss(done, WorkerLost("out of memory", with_node=False))
                return None
            case ProductLost() as loss:
                return self._take_product_loss(done.task, loss)
            case BaseException() as error:
                raise self._pipeline.error_of(error)
            case receipt:
                self._schedule.done(done.task, receipt, done.worker)
                for words in self._pipeline.warnings_of(done.task, receipt):
                    self._watch(Warned(words))
                return receipt

    def _take_worker_loss(self, done: Done, loss: WorkerLost) -> None:
        if isinstance(done.result, WorkerLost) and self._should_stop():  # the signal went to the whole process group
            raise Stopped
        times = self._losses.count(done.task, loss)
        self._schedule.worker_lost(done.task, loss, times, done.worker)
        self._watch(Warned(f"{done.task.product} lost its {loss.lost} and is retried: {loss.detail}"))

    def _take_product_loss(self, task: Task, loss: ProductLost) -> Receipt | None:
        """A concurrent run deletes scratch of what it has made; otherwise what is lost is made again."""
        receipt = self._pipeline.find_receipt(task)
        if receipt is None:
            if self._schedule.product_lost(task, loss):
                self._pipeline.discard(loss)
            return None
        self._schedule.done(task, receipt, None)
        return receipt


class Ticks:
    """Once a second: how far the run is, with the parts of tasks that are under way."""

    def __init__(
        self,
        advanced: Callable[[UnderWay], Event],
        executor: Executor,
        watch: Watcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._advanced = advanced
        self._executor = executor
        self._watch = watch
        self._clock = clock
        self._ticked_at = -INTERVAL_S
        self._awaited = 0

    def tick(self) -> None:
        """Report it, where the last time is long enough ago."""
        now = self._clock()
        if now < self._ticked_at + INTERVAL_S:
            return
        self._ticked_at = now
        state = self._executor.under_way()
        if not state.workers and state.wanted != self._awaited:
            self._awaited = state.wanted
            self._watch(WaitingForWorkers(state.wanted))
        self._watch(self._advanced(state))
