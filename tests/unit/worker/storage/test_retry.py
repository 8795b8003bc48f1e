"""Trying again: for how long, how soon, and what a service that asks for patience gets."""

from __future__ import annotations

import random
import socket
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from tokenization_worker.storage.retry import Retry, asked_wait, giving_up_unknown_hosts


@dataclass
class Service:
    """Fails so often, on a clock that only waiting moves."""

    failures: int
    asked_s: float | None = 0.0
    cause: Exception | None = None
    now: float = 0.0
    waits: list[float] = field(default_factory=list)

    def answer(self) -> str:
        if self.failures:
            self.failures -= 1
            raise ConnectionError(self.failures) from self.cause
        return "done"

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def ask(self, chance: float = 1.0) -> str:
        retry = Retry(limit_s=120, clock=lambda: self.now, sleep=self.sleep, chance=lambda: chance)
        return retry.call(self.answer, lambda _: self.asked_s)


def test_waits_double_up_to_a_limit() -> None:
    service = Service(failures=8)
    assert service.ask() == "done"
    assert service.waits == [1, 2, 4, 8, 16, 20, 20, 20]


def test_waits_are_random_so_that_workers_do_not_come_back_together() -> None:
    service = Service(failures=3)
    service.ask(chance=0.0)
    assert service.waits == [0.5, 1, 2]


def test_it_ends_within_its_time_with_the_last_error() -> None:
    service = Service(failures=1_000)
    with pytest.raises(ConnectionError):
        service.ask()
    assert 100 < service.now <= 120


@pytest.mark.parametrize(
    ("cause", "least", "most"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), 5, 10),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), 100, 120),
        (OSError("no route"), 100, 120),
    ],
    ids=["unknown host", "name server", "another error"],
)
def test_a_person_waits_ten_seconds_for_a_host_that_no_name_server_knows(
    cause: Exception, least: int, most: int
) -> None:
    for is_person, bounds in ((True, (least, most)), (False, (100, 120))):
        service = Service(failures=1_000, cause=cause)
        with giving_up_unknown_hosts() if is_person else nullcontext(), pytest.raises(ConnectionError):
            service.ask()
        assert bounds[0] < service.now <= bounds[1]


def test_what_cannot_pass_is_not_tried_again() -> None:
    service = Service(failures=1, asked_s=None)
    with pytest.raises(ConnectionError):
        service.ask()
    assert service.waits == []


def test_a_wait_that_the_service_asks_for_is_kept_even_beyond_the_usual_end() -> None:
    service = Service(failures=1, asked_s=300)
    assert service.ask() == "done"
    assert service.waits == [301]


NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("150", 150.0),
        (" 0 ", 0.0),
        ("Mon, 23 Nov 2026 12:02:30 GMT", 150.0),
        ("Mon, 23 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("\u0663", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_a_wait_is_asked_for_in_seconds_or_by_a_date(header: str | None, seconds: float) -> None:
    assert asked_wait(header, lambda: NOW) == seconds


def test_a_longer_wait_than_any_window_is_not_worth_it() -> None:
    service = Service(failures=1, asked_s=3_600)
    with pytest.raises(ConnectionError):
        service.ask()
    assert service.waits == []


def test_a_service_that_asks_for_ever_is_left() -> None:
    service = Service(failures=1_000, asked_s=100)
    with pytest.raises(ConnectionError):
        service.ask()
    assert service.now < 1_000


def test_the_random_numbers_of_the_process_stay_its_own() -> None:
    """Reads ahead wait in threads, at any time, and a caller that has seeded `random` counts on what comes next."""
    service = Service(failures=3)
    random.seed(1)
    before = random.getstate()
    Retry(clock=lambda: service.now, sleep=service.sleep).call(service.answer, lambda _: 0.0)
    assert len(service.waits) == 3
    assert random.getstate() == before
