"""Several calls at once give what one after the other would give."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tokenization_worker.host.parallel import MapAhead, map_at_once


class Meeting:
    """A call that returns once `expected` of them are under way."""

    def __init__(self, expected: int) -> None:
        self._barrier = threading.Barrier(expected, timeout=120)
        self.threads: set[int] = set()

    def __call__(self, item: int) -> int:
        self.threads.add(threading.get_ident())
        self._barrier.wait()
        return -item


def test_calls_are_under_way_at_once_and_results_keep_their_order() -> None:
    call = Meeting(4)
    assert list(map_at_once(call, range(40), 4)) == [-item for item in range(40)]
    assert len(call.threads) == 4


def test_one_at_a_time_is_done_in_this_thread_and_only_as_far_as_it_is_read() -> None:
    seen: list[tuple[int, int]] = []

    def call(item: int) -> int:
        seen.append((item, threading.get_ident()))
        return item

    results = map_at_once(call, range(10), 1)
    assert [next(results), next(results)] == [0, 1]
    assert seen == [(0, threading.get_ident()), (1, threading.get_ident())]


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_first_error_in_order_is_raised(at_once: int) -> None:
    def call(item: int) -> int:
        if item >= 5:
            raise KeyError(item)
        return item

    results = map_at_once(call, range(1_000), at_once)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="5"):
        next(results)


def test_what_is_not_read_on_has_no_call_under_way() -> None:
    ended: list[int] = []
    results = map_at_once(lambda item: ended.append(item) or item, range(1_000), 4)  # type: ignore[func-returns-value]
    next(results)
    results.close()
    count = len(ended)
    assert count < 20
    assert threading.active_count() == 1 or all("ThreadPool" not in t.name for t in threading.enumerate())


def ask(expected: list[str], asked: list[str], call: Callable[[str], str]) -> list[str]:
    with MapAhead(call, expected, 3) as look:
        return [look(item) for item in asked]


A, B, C, D = "a", "b", "c", "d"


@pytest.mark.parametrize(
    ("expected", "asked"),
    [([A, B, C], [A, B, C]), ([A, B, C], [A, D, B, C]), ([A, B], [B, A]), ([], [A, B]), ([A, B], [A])],
    ids=["as-expected", "one-more", "other-order", "none-expected", "fewer"],
)
def test_a_look_ahead_answers_whatever_is_asked(expected: list[str], asked: list[str]) -> None:
    assert ask(expected, asked, str.upper) == [item.upper() for item in asked]


def test_a_look_ahead_asks_once_for_what_was_expected() -> None:
    calls: list[str] = []
    items = [f"{number}" for number in range(50)]
    assert ask(items, items, lambda item: calls.append(item) or item) == items  # type: ignore[func-returns-value]
    assert sorted(calls) == sorted(items)
