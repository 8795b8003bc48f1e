"""The engine runs a pipeline that is not tokenize: three levels of scratch, whatever is lost, killed or stopped."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from support.engine.inline import InlineExecutor
from support.engine.level_runs import ITEMS, LAYOUT, ONE_OF_EACH, Bed, deaths_of, stops_after
from support.engine.level_tasks import (
    MOMENTS,
    PRODUCT_LOST,
    LevelPipeline,
    Vandal,
    leftovers,
)
from tokenization_worker.engine.dispatch import Stopped, run_pipeline
from tokenization_worker.engine.executor import Executor
from tokenization_worker.engine.local import LocalExecutor
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import TemporaryError

SEEDS = range(12)
TIMEOUT_S = 120


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def inline(before: Callable[[Task], None] = lambda task: None, slots: int = 3) -> Callable[[], Executor]:
    return lambda: InlineExecutor(before, slots)


def local() -> Executor:
    return LocalExecutor(2, fork=True)


@pytest.mark.parametrize("is_early", [False, True], ids=["late", "early"])
def test_each_task_of_every_level_runs_once(is_early: bool, bed: Bed) -> None:
    bed.run(inline(), is_early=is_early)
    bed.require_complete()
    begun = bed.journal().begun()
    assert len(begun) == len(set(begun)) == ITEMS
    bed.run(inline())
    assert len(bed.journal().begun()) == ITEMS, "a second start has nothing to do"


@pytest.mark.parametrize("seed", SEEDS)
def test_scratch_of_any_level_may_be_lost_at_any_moment(seed: int, bed: Bed) -> None:
    vandal = Vandal(bed.output, seed, chance=0.3)
    bed.run(inline(lambda task: vandal.strike()), seed, is_early=bool(seed % 2))
    assert vandal.damage
    bed.require_complete()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_stops_at_any_moment_goes_on(seed: int, bed: Bed) -> None:
    lots = random.Random(seed)
    vandal = Vandal(bed.output, seed, chance=0.2)
    for _ in range(100):
        try:
            stop = stops_after(lots.randrange(1, 12))
            bed.run(inline(lambda task: vandal.strike()), lots.randrange(1 << 30), should_stop=stop)
            break
        except Stopped:
            continue
    bed.require_complete()


def test_a_start_after_the_last_task_deletes_what_the_stop_left(bed: Bed) -> None:
    """All receipts are there, and nobody has deleted the last products yet."""
    pipeline = LevelPipeline(LAYOUT, bed.output, bed.journal(), 0)
    with pytest.raises(Stopped):
        run_pipeline(pipeline, inline(slots=1), lambda event: None, lambda: pipeline.schedule.is_finished)
    assert leftovers(bed.output)
    bed.run(inline())
    bed.require_complete()


class Turns:
    """Threads that run one at a time, and whose lots say who is next: the same order at every call of a seed."""

    def __init__(self, seed: int, names: tuple[int, ...]) -> None:
        self._lots = random.Random(seed)
        self._alive = list(names)
        self._now = names[0]
        self._changed = threading.Condition()

    def wait(self, name: int) -> None:
        """Give the turn away, and wait for the next one."""
        with self._changed:
            self._now = self._lots.choice(self._alive)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._now == name, TIMEOUT_S):
                raise TimeoutError

    def begin(self, name: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._now == name, TIMEOUT_S):
                raise TimeoutError

    def end(self, name: int) -> None:
        with self._changed:
            self._alive.remove(name)
            if self._alive:
                self._now = self._lots.choice(self._alive)
            self._changed.notify_all()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_runs_at_once_that_delete_each_others_scratch(seed: int, bed: Bed) -> None:
    """Each deletes what it needs no more. Where more of it is lost, too, one of them may have to start again."""
    turns = Turns(seed, (0, 1))
    is_lost_too = bool(seed % 2)
    vandal = Vandal(bed.output, seed, chance=0.1 * is_lost_too)
    errors: list[BaseException] = []

    def before(name: int, task: Task) -> None:
        turns.wait(name)
        vandal.strike()

    def run(name: int) -> None:
        turns.begin(name)
        start = inline(lambda task: before(name, task), slots=2)
        try:
            try:
                bed.run(start, seed * 2 + name)
            except TemporaryError as error:
                if error.reason != PRODUCT_LOST or not is_lost_too:
                    raise
                bed.run(start, seed * 2 + name)
        except BaseException as error:  # noqa: BLE001  the test's to raise
            errors.append(error)
        finally:
            turns.end(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    bed.require_complete()


def test_what_a_concurrent_run_has_finished_is_not_made_again(bed: Bed) -> None:
    """It has deleted all scratch that this run has made so far, and still needs."""
    done = 0

    def finish_elsewhere(task: Task) -> None:
        nonlocal done
        done += 1
        if done == ITEMS // 2:
            bed.run(inline(), journal=bed.journal(name="elsewhere"))

    bed.run(inline(finish_elsewhere, slots=1))
    bed.require_complete()
    begun = Counter(bed.journal().begun())
    assert set(begun.values()) == {1}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_costs_its_own_task_alone(moment: str, bed: Bed) -> None:
    deaths = tuple((item, moment) for item in ONE_OF_EACH)
    journal = bed.journal(first_deaths=deaths)
    bed.run(local, journal=journal)
    bed.require_complete()
    begun = journal.begun()
    assert {item for item, times in Counter(begun).items() if times == 2} == set(ONE_OF_EACH)
    assert (len(set(begun)), len(begun)) == (ITEMS, ITEMS + len(deaths))
    assert bed.killed == len(deaths)


@pytest.mark.parametrize("seed", range(4))
def test_processes_that_are_killed_and_scratch_that_is_lost_and_stops(seed: int, bed: Bed) -> None:
    lots = random.Random(seed)
    vandal = Vandal(bed.output, seed, chance=0.2)
    deaths = deaths_of(lots, 6)
    for _ in range(50):
        try:
            stop = stops_after(lots.randrange(4, 30))
            bed.run(local, seed, journal=bed.journal(*deaths), should_stop=stop, on_event=vandal.strike)
            break
        except Stopped:
            continue
    bed.require_complete()


def _run_in_process(root: Path, name: str, seed: int, deaths: tuple[tuple[int, str], ...]) -> None:
    bed = Bed(root)
    vandal = Vandal(bed.output, seed, chance=0.1)
    for _ in range(10):
        try:
            return bed.run(local, seed, journal=bed.journal(*deaths, name=name), on_event=vandal.strike)
        except TemporaryError as error:
            if error.reason != PRODUCT_LOST:
                raise
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("seed", range(3))
def test_two_runs_of_killed_processes_at_once(seed: int, bed: Bed) -> None:
    lots = random.Random(seed)
    context = get_context("fork")
    processes = []
    for name in ("one", "two"):
        arguments = (bed.root, name, lots.randrange(1 << 30), deaths_of(lots, 3))
        process = context.Process(target=_run_in_process, args=arguments)
        process.start()
        processes.append(process)
    for process in processes:
        process.join(TIMEOUT_S)
    assert [process.exitcode for process in processes] == [0, 0]
    bed.require_complete()
