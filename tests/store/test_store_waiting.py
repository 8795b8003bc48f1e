"""Whoever waits for a service is told so, once in a while, and for what."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from huggingface_hub.utils import httpx

from support.patience import Clock, quick_retry
from support.runs import TOKJOB
from tokenization_worker.errors import TemporaryError
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.stop import StopToken
from tokenization_worker.storage import retry
from tokenization_worker.storage.gcs.client import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.hf.client import BadAnswer, hf_wait, map_hf_errors
from tokenization_worker.storage.retry import Retry, Waiting, WarningPace, calling
from tokenization_worker.storage.sources import list_source


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "SHARED_PACE", retry.WarningPace())


@pytest.fixture
def stop() -> Iterator[StopToken]:
    """That of a command that this thread runs."""
    with StopToken() as stop:
        yield stop


def fail(times: int) -> Callable[[], None]:
    """A call that works after so many tries."""
    left = iter(range(times))

    def call() -> None:
        if next(left, None) is not None:
            raise ConnectionError("nobody is there: see https://host/path?upload_id=secret")

    return call


def ask(times: int, pace: WarningPace | None = None) -> None:
    clock = Clock()
    Retry(clock=lambda: clock.now, sleep=clock.sleep, chance=lambda: 1.0, pace=pace).call(fail(times), lambda _: 0.0)


def test_what_passes_soon_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    ask(2)  # a wait of 1 s and one of 2 s
    assert not caplog.messages


def test_a_call_that_fails_for_a_while_is_told_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with calling("read gs://bucket/a"):
        ask(6)
    assert caplog.messages == [
        "cannot read gs://bucket/a yet: nobody is there: see https://host; waited 7 s, trying again for 113 s more"
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_other_calls_are_silent_for_a_while(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1_000.0)
    monkeypatch.setattr(retry, "SHARED_PACE", WarningPace(lambda: clock.now))
    ask(6)
    clock.now += retry.TELL_AGAIN_S - 1
    ask(6)
    assert len(caplog.messages) == 1
    clock.now += 1
    ask(6)
    assert len(caplog.messages) == 2


def test_calls_of_another_pace_are_not_silenced(caplog: pytest.LogCaptureFixture) -> None:
    ask(6)
    ask(6, WarningPace())
    assert len(caplog.messages) == 2


def test_each_line_of_a_call_says_how_long_it_was_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(1_000.0)
    monkeypatch.setattr(retry, "SHARED_PACE", WarningPace(lambda: clock.now))
    with pytest.raises(ConnectionError):
        Retry(clock=lambda: clock.now, sleep=clock.sleep, chance=lambda: 1.0).call(fail(99), lambda _: 0.0)
    assert [message.partition("; ")[2] for message in caplog.messages] == [
        "waited 7 s, trying again for 113 s more",
        "waited 51 s, trying again for 69 s more",
        "waited 91 s, trying again for 29 s more",
    ]


def test_a_service_that_asks_for_patience_is_waited_for_as_long_as_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    Retry(clock=lambda: clock.now, sleep=clock.sleep, chance=lambda: 1.0).call(fail(2), lambda _: 200.0)
    assert caplog.messages[0].endswith("; waited 201 s, trying again for 249 s more")


def test_a_call_within_another_is_named_and_then_the_other_one(caplog: pytest.LogCaptureFixture) -> None:
    with calling("list gs://bucket"):
        with calling("read gs://bucket/a"):
            pass
        ask(6)
    assert "list gs://bucket" in caplog.text


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Where nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_only_a_call_that_is_tried_again_is_waited_for(stop: StopToken) -> None:
    states: list[bool] = []

    def call() -> None:
        states.append(stop.is_waiting)
        if len(states) < 3:
            raise ConnectionError

    clock = Clock()
    with calling("read gs://bucket/a"):
        Retry(clock=lambda: clock.now, sleep=clock.sleep).call(call, lambda _: 0.0)
    assert states == [False, True, True]
    assert not stop.is_waiting


def test_a_last_word_is_not_given_up(stop: StopToken) -> None:
    with Waiting(None) as tell:
        with calling("reach checkpoint team/a", may_be_given_up=False):
            tell(ConnectionError())
            assert not stop.is_waiting
        tell(ConnectionError())
        assert stop.is_waiting


def test_calls_of_other_threads_are_waited_for_too_and_left_behind(stop: StopToken) -> None:
    """As the listings of a start are: a signal must not wait for them."""
    goes_on = threading.Event()

    def repeat(number: int) -> None:
        with Waiting(None) as tell:
            tell(ConnectionError())
            if number == 0:
                os.kill(os.getpid(), signal.SIGALRM)  # which the main thread takes, in the midst of its waiting
            goes_on.wait(120)

    def take(number: int, frame: object) -> None:
        if stop.stop():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, take)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(map_at_once(repeat, range(4), 2))
        assert stop.is_waiting
    finally:
        signal.signal(signal.SIGALRM, before)
        goes_on.set()


def test_a_call_that_fails_first_after_the_stop_is_not_repeated(stop: StopToken) -> None:
    assert not stop.stop()
    with pytest.raises(KeyboardInterrupt):
        ask(1)
    with calling("reach checkpoint team/a", may_be_given_up=False):
        ask(1)


def test_a_stop_is_of_one_command_alone() -> None:
    with StopToken() as stopped:
        stopped.stop()
    ask(1)
    with StopToken():
        ask(1)


def test_the_reason_of_a_refused_connection_is_told_without_its_request(closed_port: int) -> None:
    with pytest.raises(requests.ConnectionError) as caught:
        requests.get(f"http://127.0.0.1:{closed_port}/path?upload_id=secret", timeout=60)
    assert "Connection refused" in words_of(caught.value)
    assert "secret" not in words_of(caught.value)


@pytest.mark.parametrize(
    ("error", "service", "words"),
    [
        pytest.param(
            httpx.ConnectError("refused", request=httpx.Request("GET", "https://u:hunter2@cdn:1/x?sig=f00")),
            "https://hub",
            "https://***@cdn:1: refused",
            id="of httpx, which names no host",
        ),
        pytest.param(httpx.ConnectError("refused"), "https://hub/api", "https://hub: refused", id="without a request"),
        pytest.param(ValueError("no list"), "http://u:hunter2@hub:9", "http://***@hub:9: no list", id="of a service"),
        pytest.param(ValueError("503 of https://hub/x"), "https://hub", "503 of https://hub", id="named already"),
        pytest.param(ValueError(), "https://hub", "https://hub: ValueError", id="without words"),
        pytest.param(ValueError("refused"), "", "refused", id="of nobody"),
    ],
)
def test_who_was_asked_is_named_once(error: Exception, service: str, words: str) -> None:
    assert words_of(error, service) == words


def test_a_hub_that_does_not_answer_is_named(
    closed_port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setattr("tokenization_worker.storage.hf.source.Retry", quick_retry)
    with pytest.raises(TemporaryError) as told:
        list_source(("hf://datasets/org/name/x.parquet",))
    why = f"http://127.0.0.1:{closed_port}: [Errno 111] Connection refused"
    assert caplog.messages[0].startswith(f"cannot read hf://datasets/org/name/x.parquet yet: {why}; waited ")
    assert told.value.message == f"cannot read hf://datasets/org/name/x.parquet: {why}"


def test_an_answer_that_is_not_the_hubs_is_told_with_its_endpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answer() -> None:
        raise BadAnswer("no list")

    monkeypatch.setenv("HF_ENDPOINT", "https://user:hunter2@mirror.example")
    uri = "hf://datasets/org/name/x"
    with pytest.raises(TemporaryError) as told, map_hf_errors(uri):
        quick_retry().call(answer, hf_wait)
    why = "https://***@mirror.example: no list"
    assert caplog.messages[0].startswith(f"cannot read {uri} yet: {why}; waited ")
    assert told.value.message == f"cannot read {uri}: {why}"


def test_a_connection_is_not_waited_for_as_long_as_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def send(adapter: object, request: object, **how: object) -> None:
        seen.append(how["timeout"])
        raise KeyboardInterrupt  # what nobody catches

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with pytest.raises(KeyboardInterrupt):
        GcsStore("gs://bucket/out").read("a")
    assert seen == [(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)]


@pytest.mark.slow
def test_a_command_says_within_seconds_what_it_waits_for_and_can_be_stopped(closed_port: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    job = ["--source", str(tmp_path), "--tokenizer", "bytes", "--output", "gs://bucket/out"]
    environment = {**os.environ, "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{closed_port}"}
    with subprocess.Popen(
        [str(TOKJOB), "run", *job], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        said = run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 143  # not after two minutes
        assert "finished work is kept" in run.stderr.read()
    assert said.startswith("cannot read gs://bucket/out/index.json yet: "), said
    assert f"yet: no connection to 127.0.0.1:{closed_port}: [Errno 111] Connection refused; waited " in said
    waits = re.search(r"; waited (\d+) s, trying again for (\d+) s more\n$", said)
    assert waits is not None, said
    waited_s, left_s = map(int, waits.groups())
    assert 4 <= waited_s < 60  # 4 to 9 on an idle machine
    assert 119 <= waited_s + left_s <= 121  # each is rounded
