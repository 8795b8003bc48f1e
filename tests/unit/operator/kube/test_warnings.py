"""What events say of what could not be made: listed once a namespace, and no namespace waits for another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.kube.paging import Ask
from tokenization_operator.kube.warning_lists import SELECTOR, WarningLists, read_warning
from tokenization_worker.api.types.times import time_text

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Posted:
    """The events of all namespaces. `asked`: namespaces, a page each; `holds`: those that do not answer yet."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.asked: list[str] = []
        self.selectors: set[str] = set()
        self.holds: dict[str, asyncio.Event] = {}
        self.now = 0.0
        self.fails = False
        self.lists = WarningLists(self.ask_for, lambda: self.now)

    def ask_for(self, namespace: str, selector: str) -> Ask:
        self.selectors.add(selector)

        async def ask(page: dict[str, Any]) -> dict[str, Any]:
            self.asked.append(namespace)
            if namespace in self.holds:
                await self.holds[namespace].wait()
            if self.fails:
                raise ApiException(status=503)
            begin = int(page.get("continue", 0))
            end = begin + page["limit"]
            token = {"continue": str(end)} if end < len(self.items) else {}
            return {"items": self.items[begin:end], "metadata": token}

        return ask

    async def find(self, name: str = "demo-r1-p1", namespace: str = "team") -> tuple[str, ...]:
        return await self.lists.find(namespace, frozenset({name}), NOW)


def event(name: str, message: str, minute: int, reason: str = "FailedCreate") -> dict[str, Any]:
    return {
        "metadata": {"name": "e", "creationTimestamp": time_text(NOW - timedelta(hours=1))},
        "involvedObject": {"name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": time_text(NOW + timedelta(minutes=minute)),
        "eventTime": None,
    }


def test_warnings_are_of_ones_own_children_and_of_this_life() -> None:
    posted = Posted(
        event("demo-r1-p1", "old", -1), event("demo-r1-p1", "quota", 1), event("other-r1-p1", "other", 1)
    )  # fmt: skip

    async def story() -> None:
        assert await posted.find() == ("quota",)
        assert await posted.find("other-r1-p1") == ("other",)
        assert posted.asked == ["team"], "one list for all jobs of a namespace"
        posted.now = 11.0
        await posted.find()
        assert posted.asked == ["team"] * 2

    asyncio.run(story())


def test_of_each_object_the_last_words_alone_are_believed() -> None:
    posted = Posted(
        event("demo-r1-a1-x", "violates PodSecurity", 1),
        event("demo-r1-a1-x", "exceeded quota", 2),
        event("demo-r1-a1", "no submitter", 3),
    )

    async def find() -> tuple[str, ...]:
        return await posted.lists.find("team", frozenset({"demo-r1-a1", "demo-r1-a1-x"}), NOW)

    assert asyncio.run(find()) == ("no submitter", "exceeded quota")


def test_one_list_holds_all_kinds_of_failures_and_leaves_out_what_is_frequent() -> None:
    reasons = ("FailedCreate", "FailedToCreateHeadPod", "FailedToCreateWorkerPod", "FailedToCreateService")
    posted = Posted(*(event("demo-r1-p1", reason, 1, reason) for reason in (*reasons, "Preempting")))
    assert asyncio.run(posted.find()) == reasons
    assert posted.asked == ["team"]
    assert posted.selectors == {SELECTOR}
    assert "type=Warning" in SELECTOR
    assert "reason!=FailedScheduling" in SELECTOR


def test_all_pages_are_read() -> None:
    posted = Posted(*(event("other", "noise", 1, "Preempting") for _ in range(500)), event("demo-r1-p1", "quota", 1))
    assert asyncio.run(posted.find()) == ("quota",)
    assert len(posted.asked) == 2


def test_a_namespace_does_not_wait_for_another_one() -> None:
    posted = Posted(event("demo-r1-p1", "quota", 1))

    async def story() -> None:
        posted.holds["slow"] = asyncio.Event()
        waiting = [asyncio.create_task(posted.find(namespace="slow")) for _ in range(3)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(posted.find(namespace="quick"), 30) == ("quota",)
        assert not any(task.done() for task in waiting)
        posted.holds["slow"].set()
        assert await asyncio.gather(*waiting) == [("quota",)] * 3
        assert sorted(posted.asked) == ["quick", "slow"], "those who wait for a list share it"

    asyncio.run(story())


def test_a_cancelled_reader_cancels_no_list_of_others() -> None:
    posted = Posted(event("demo-r1-p1", "quota", 1))

    async def story() -> None:
        posted.holds["team"] = asyncio.Event()
        impatient, patient = (asyncio.create_task(posted.find()) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        posted.holds["team"].set()
        assert await patient == ("quota",)

    asyncio.run(story())


def test_a_list_that_failed_is_asked_for_again() -> None:
    posted = Posted(event("demo-r1-p1", "quota", 1))

    async def story() -> None:
        posted.fails = True
        with pytest.raises(ApiException):
            await posted.find()
        posted.fails = False
        assert await posted.find() == ("quota",)

    asyncio.run(story())


def test_lists_of_namespaces_that_are_no_longer_asked_for_are_dropped() -> None:
    posted = Posted()

    async def story() -> None:
        for number in range(100):
            await posted.find(namespace=f"team-{number}")
        posted.now = 61.0
        await posted.find(namespace="team-0")
        assert len(posted.lists) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"lastTimestamp": None, "eventTime": "2026-11-22T12:05:00.123456Z"}, 5),
        ({"lastTimestamp": None, "series": {"lastObservedTime": "2026-11-22T12:09:00Z"}}, 9),
        ({"lastTimestamp": "2026-11-22T12:07:00Z"}, 7),
    ],
    ids=["new", "series", "classic"],
)  # fmt: skip
def test_the_time_of_an_event_is_when_it_was_last_seen(times: dict[str, Any], expected: int) -> None:
    found = read_warning(event("demo", "words", 1) | times)
    assert found is not None
    assert found.time.replace(microsecond=0) == NOW + timedelta(minutes=expected)


def test_an_event_about_anything_else_is_none() -> None:
    assert read_warning(event("demo", "words", 1, "Preempting")) is None
    assert read_warning(event("demo", "", 1)) is None


def test_a_list_that_takes_long_is_waited_for_and_not_asked_for_again() -> None:
    posted = Posted(event("demo-r1-p1", "quota", 1))
    posted.holds["team"] = asyncio.Event()

    async def story() -> None:
        looks = []
        for _ in range(4):
            looks.append(asyncio.ensure_future(posted.find()))
            await asyncio.sleep(0)
            posted.now += 11
        assert posted.asked == ["team"]
        posted.holds["team"].set()
        assert await asyncio.gather(*looks) == [("quota",)] * 4

    asyncio.run(story())
