"""Runs the checks of many shards or files, here or in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from tokenization_worker.processes import begin_worker, end_pool, start_method, starting_processes, worker_died
from tokenization_worker.verification.facts import Facts

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4
"""Tasks that wait for every process, so that none of them waits for a task."""

_facts: Facts


def run_all(
    check: Callable[[Facts, T], R], facts: Facts, tasks: Sequence[T], *, processes: int, may_fork: bool
) -> Iterator[tuple[int, R]]:
    """`check(facts, task)` of every task, with the task's number, as they are done."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        for number, task in enumerate(tasks):
            yield number, check(facts, task)
        return
    context = start_method(may_fork=may_fork)
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(facts,))
    running: dict[Future[R], int] = {}
    todo = iter(enumerate(tasks))
    try:
        while True:
            while len(running) < processes * _AHEAD and (item := next(todo, None)) is not None:
                with starting_processes(context):
                    running[pool.submit(_run, check, item[1])] = item[0]
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise worker_died() from error
    finally:
        end_pool(pool, kill=bool(running))


def _start(facts: Facts) -> None:
    global _facts
    _facts = facts
    begin_worker()


def _run(check: Callable[[Facts, T], R], task: T) -> R:
    return check(_facts, task)
