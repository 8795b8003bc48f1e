"""Ctrl-C while a Ray cluster of our own starts: it ends soon, or says what it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray

from tokenization_worker.engine.ray import connection as ray_connection
from tokenization_worker.engine.ray.executor import RayCluster
from tokenization_worker.engine.ray.signals import announcing_stops
from tokenization_worker.stop import StopToken

STARTING = """
import hashlib, signal
from tokenization_worker.engine.ray.signals import announcing_stops

signal.signal(signal.SIGINT, lambda *_: None)  # none runs in the call; before it, Python's own would end the process
with announcing_stops():
    print("starting", flush=True)
    while True:  # each call takes minutes, and no handler runs in it
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
"""


@contextmanager
def starting() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_stop_that_ray_does_not_hear_is_answered_and_the_second_ends() -> None:
    with starting() as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert (
            process.stderr.readline()
            == "Ray is starting; the run stops when Ray answers. Press Ctrl-C again to stop now\n"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130


def test_the_first_stop_leaves_the_start_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**how: object) -> None:
        assert how["address"] == "local"
        os.kill(os.getpid(), signal.SIGINT)

    def stop(number: int, frame: object) -> None:
        if token.stop():  # as `tokjob run` does
            raise KeyboardInterrupt

    token = StopToken()
    monkeypatch.setattr(ray, "init", start)
    before = signal.signal(signal.SIGINT, stop)
    try:
        with token, pytest.raises(KeyboardInterrupt), RayCluster("local", 1) as cluster:
            cluster.count_slots()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not token.is_waiting


def test_who_was_stopped_before_starts_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    token = StopToken()
    token.stop()
    monkeypatch.setattr(ray, "init", lambda **how: pytest.fail("started"))
    with token, pytest.raises(KeyboardInterrupt):
        ray_connection.connect("local", 1)


def test_files_are_closed_where_nobody_stops() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(3):
        with announcing_stops():
            pass
    assert count() == before
