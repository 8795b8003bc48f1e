"""When which key is looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tokenization_operator.informer import work_queue
from tokenization_operator.informer.work_queue import NotReconciled, WorkQueue

DEADLINE_S = 120


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


class Reconciles:
    """Looks that last until they are told to end. `answers`: what each returns or raises, in order."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.began: list[str] = []
        self.times: list[float] = []
        self.ended: list[str] = []
        self.told: list[tuple[str, str]] = []
        self._answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()

    async def reconcile(self, key: str) -> float | None:
        self.times.append(time.monotonic())
        await self._note(self.began, key)
        await self.gate.wait()
        await self._note(self.ended, key)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _note(self, where: list[str], key: str) -> None:
        async with self._changed:
            where.append(key)
            self._changed.notify_all()

    def tell(self, key: str, error: Exception) -> None:
        self.told.append((key, str(error)))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)


def test_a_key_that_is_named_often_is_looked_at_once() -> None:
    async def story() -> None:
        reconciles = Reconciles()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        running = asyncio.create_task(queue.run(1))
        await reconciles.until(lambda: len(reconciles.ended) == 2)
        assert reconciles.began == ["a", "b"]
        running.cancel()

    play(story)


def test_a_key_is_looked_at_by_one_worker_at_a_time_and_again_if_it_was_named_meanwhile() -> None:
    async def story() -> None:
        reconciles = Reconciles()
        reconciles.gate.clear()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        queue.add("a")
        running = asyncio.create_task(queue.run(4))
        await reconciles.until(lambda: reconciles.began == ["a"])
        queue.add("a")
        queue.add("b")
        await reconciles.until(lambda: reconciles.began == ["a", "b"])
        assert queue.waiting == 0, "one is wanted again, and both are under work"
        reconciles.gate.set()
        await reconciles.until(lambda: sorted(reconciles.ended) == ["a", "a", "b"])
        running.cancel()

    play(story)


def test_a_failed_reconcile_is_reported_and_retried_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "FIRST_DELAY_S", 0.02)

    async def story() -> None:
        reconciles = Reconciles(ValueError("one"), ValueError("two"), ValueError("three"), None)
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        queue.add("a")
        running = asyncio.create_task(queue.run(2))
        await reconciles.until(lambda: len(reconciles.ended) == 4)
        assert reconciles.told == [("a", "one"), ("a", "two"), ("a", "three")]
        pauses = [later - sooner for sooner, later in zip(reconciles.times, reconciles.times[1:], strict=False)]
        assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=True)), pauses
        running.cancel()

    play(story)


def test_a_look_says_when_it_wants_to_look_again() -> None:
    async def story() -> None:
        reconciles = Reconciles(0.0, 0.01, None)
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        queue.add("a")
        running = asyncio.create_task(queue.run(1))
        await reconciles.until(lambda: len(reconciles.ended) == 3)
        running.cancel()

    play(story)


def test_news_wait_until_some_time_after_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "CALM_S", 0.05)

    async def story() -> None:
        reconciles = Reconciles()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        queue.notice("a")
        running = asyncio.create_task(queue.run(1))
        await reconciles.until(lambda: len(reconciles.ended) == 1)
        for _ in range(5):
            queue.notice("a")
        queue.notice("b")
        await reconciles.until(lambda: len(reconciles.ended) == 3)
        assert reconciles.began == ["a", "b", "a"]
        assert reconciles.times[2] - reconciles.times[0] >= 0.05
        running.cancel()

    play(story)


def test_no_more_keys_are_looked_at_at_once_than_there_are_workers() -> None:
    async def story() -> None:
        reconciles = Reconciles()
        reconciles.gate.clear()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        for key in "abcd":
            queue.add(key)
        running = asyncio.create_task(queue.run(2))
        await reconciles.until(lambda: len(reconciles.began) == 2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert reconciles.began == ["a", "b"]
        reconciles.gate.set()
        await reconciles.until(lambda: len(reconciles.ended) == 4)
        running.cancel()

    play(story)


def test_wishes_for_another_day_do_not_pile_up() -> None:
    async def story() -> None:
        reconciles = Reconciles()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        for round_s in range(1000):
            for key in "abc":
                queue.add(key, 10**6 - round_s)
        assert len(queue._due) == 3
        assert len(queue._heap) < 100
        queue.add("b")
        running = asyncio.create_task(queue.run(1))
        await reconciles.until(lambda: reconciles.ended == ["b"])
        assert len(queue._due) == 2
        running.cancel()

    play(story)


def test_only_due_keys_that_no_worker_has_taken_wait() -> None:
    async def story() -> None:
        reconciles = Reconciles()
        reconciles.gate.clear()
        queue = WorkQueue(reconciles.reconcile, reconciles.tell)
        for key in "abc":
            queue.add(key)
        queue.add("next week", 10**6)
        assert queue.waiting == 3
        running = asyncio.create_task(queue.run(2))
        await reconciles.until(lambda: reconciles.began == ["a", "b"])
        assert queue.waiting == 1
        running.cancel()

    play(story)


def test_a_look_that_another_operator_does_is_neither_a_look_nor_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reconcile(key: str) -> None:
        raise NotReconciled

    failed: list[str] = []
    queue: WorkQueue[str] = WorkQueue(reconcile, lambda key, error: failed.append(key))

    async def work() -> None:
        queue._last_reconcile_at = 0.0
        queue.add("a")
        task = asyncio.create_task(queue.run(1))
        while queue._due or queue._busy:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert not failed
    assert queue._last_reconcile_at == 0.0
