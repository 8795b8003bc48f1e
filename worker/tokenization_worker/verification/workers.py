"""Runs the checks of many shards or files, here or in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

from tokenization_worker.host.main_guard import EXIT_CODE, guard_missing
from tokenization_worker.processes import begin_worker, end_pool, start_method, starting_processes, worker_died
from tokenization_worker.verification.advance import INTERVAL_S, Advances, EverySecond, OnAdvance, send
from tokenization_worker.verification.facts import Facts

T = TypeVar("T")
R = TypeVar("R")

Check = Callable[[Facts, T, OnAdvance], R]

_AHEAD = 4
"""Tasks that wait for every process, so that none of them waits for a task."""

_facts: Facts
_writer: Connection


def run_all(
    check: Check[T, R],
    facts: Facts,
    tasks: Iterable[T],
    *,
    processes: int,
    may_fork: bool,
    on_advance: Callable[[dict[int, int]], None] = lambda under_way: None,
) -> Iterator[tuple[int, R]]:
    """`check(facts, task, on_advance)` of every task, with the task's number, as they are done.

    At most `processes` * `_AHEAD` tasks are taken before they can be worked on.
    `on_advance` is called about each second with what the tasks under way have told, by number.
    """
    if processes <= 1:
        for number, task in enumerate(tasks):
            yield number, check(facts, task, EverySecond(lambda size, number=number: on_advance({number: size})))  # type: ignore[misc]
        return
    context = start_method(may_fork=may_fork)
    advances = Advances()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(facts, advances.writer))
    running: dict[Future[R], int] = {}
    tell_at = time.monotonic() + INTERVAL_S
    todo = iter(enumerate(tasks))
    try:
        while True:
            while len(running) < processes * _AHEAD and (item := next(todo, None)) is not None:
                with starting_processes(context):
                    number, task = item
                    running[pool.submit(_run, check, number, task)] = number
            if not running:
                return
            done, _ = wait(running, timeout=INTERVAL_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + INTERVAL_S
                on_advance(advances.read(set(running.values())))
    except BrokenProcessPool as error:
        codes = end_pool(pool, kill=True)
        if EXIT_CODE in codes:
            raise guard_missing("verify") from None
        raise worker_died() from error
    finally:
        end_pool(pool, kill=bool(running))
        advances.close()


def _start(facts: Facts, writer: Connection) -> None:
    global _facts, _writer
    _facts, _writer = facts, writer
    begin_worker()


def _run(check: Check[T, R], number: int, task: T) -> R:
    return check(_facts, task, EverySecond(partial(send, _writer, number)))
