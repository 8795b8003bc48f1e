"""The time by the clock of the service, whatever this machine's says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import requests

from support.patience import Clock
from tokenization_worker.storage.gcs.client import ServiceClock

SENT = datetime(2026, 11, 25, 6, 30, 15, tzinfo=UTC)


def answer(date: str | None) -> requests.Response:
    response = requests.Response()
    if date is not None:
        response.headers["Date"] = date
    return response


def test_the_time_goes_on_from_the_last_answer_that_had_one() -> None:
    machine = Clock(1_000.0)
    clock = ServiceClock(lambda: machine.now)
    clock.note(answer("Wed, 25 Nov 2026 06:30:15 GMT"))
    machine.now += 2.5
    clock.note(answer(None))
    assert clock.now() == SENT + timedelta(seconds=2.5)
    clock.note(answer("Wed, 25 Nov 2026 07:30:15 GMT"))
    assert clock.now() == SENT + timedelta(hours=1)


def test_before_an_answer_and_after_nonsense_it_is_this_machines_time() -> None:
    clock = ServiceClock()
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    clock.note(answer("soon"))
    assert before <= clock.now() <= datetime.now(UTC)
