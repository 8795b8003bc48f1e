"""An API server that fails, forgets or refuses: the operator goes on, or ends and says why. It is no zombie."""

from __future__ import annotations

import json
import random
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from kubernetes import client

from support.cluster.jobs import DEADLINE_S, Jobs, local_spec, wait_for
from support.cluster.operators import Release, stop
from testbed.api_proxy import ApiProxy, Asked
from testbed.ports import hold_ports
from tokenization_operator.command import main
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.testbed

WATCH_S = 54.0 + DEADLINE_S
"""Kopf asks nine times before it gives up a watch, and waits 54 s in all."""


class OneInFive:
    """A status code for a fifth of the requests that are no watches, by chance."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._chance = random.Random(status)

    def __call__(self, asked: Asked) -> int | None:
        return self._status if not asked.is_watch and self._chance.random() < 1 / 5 else None


def get(url: str) -> str:
    """What is served there; empty where no server listens."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def health(port: int) -> str:
    return get(f"http://127.0.0.1:{port}/healthz")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_jobs_go_on_through_answers_that_pass(
    status: int, release: Release, jobs: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    with ApiProxy.of(api) as proxy, release.operator(server=proxy.url):
        wait_for(lambda: sum(asked.is_watch for asked in proxy.asked), lambda watches: watches >= 5)
        proxy.answer = OneInFive(status)
        jobs.apply("demo", local_spec(tmp_path))
        jobs.reach("demo", "Succeeded")
        assert jobs.names(Kind.RAY_JOB) == ["demo-r1-a1"]


@pytest.mark.parametrize("expired", [False, True], ids=["closed", "410 Gone"])
def test_jobs_go_on_when_all_watches_end(
    expired: bool, release: Release, jobs: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    with ApiProxy.of(api) as proxy, release.operator(server=proxy.url):
        for name in ("one", "two"):
            wait_for(lambda: proxy.open_watches, lambda watches: watches >= 5)
            before = sum(asked.is_watch for asked in proxy.asked)
            assert proxy.end_watches(expired=expired) >= 5
            wait_for(lambda before=before: sum(a.is_watch for a in proxy.asked), lambda now, b=before: now >= b + 5)  # type: ignore[misc]
            jobs.apply(name, local_spec(tmp_path / name))
            jobs.reach(name, "Succeeded")


@pytest.mark.parametrize(
    ("plural", "may_list"),
    [("tokenizationjobs", False), ("tokenizationcheckpoints", False), ("pods", False), ("rayjobs", True)],
)
def test_an_operator_that_may_not_watch_ends_and_says_so(
    plural: str, may_list: bool, release: Release, api: client.ApiClient
) -> None:
    def forbid(asked: Asked) -> int | None:
        is_it = asked.method == "GET" and asked.path.endswith(f"/{plural}")
        return 403 if is_it and (asked.is_watch or not may_list) else None

    with ApiProxy.of(api) as proxy:
        proxy.answer = forbid
        with release.operator(server=proxy.url) as process:
            assert process.wait(WATCH_S) in (1, -signal.SIGKILL)
    assert plural in release.log.read_text("utf-8")


def test_an_operator_whose_kinds_are_missing_ends_and_says_so(release: Release, api: client.ApiClient) -> None:
    def hide(asked: Asked) -> int | None:
        return 404 if asked.path.startswith("/apis/tokenization.dev") else None

    with ApiProxy.of(api) as proxy:
        proxy.answer = hide
        with release.operator(server=proxy.url) as process:
            assert process.wait(DEADLINE_S) == 1
    said = " ".join(each["message"] for each in release.errors())
    assert "does not serve tokenization.dev/v1alpha1" in said
    assert "helm upgrade" in said


def test_an_operator_stops_on_sigterm_and_waits_for_none_of_its_tasks(release: Release) -> None:
    [port] = hold_ports(1)
    with release.operator(health_port=port, flags=["--verbose"]) as process:
        wait_for(lambda: health(port), bool)
        assert stop(process) == 0
    told = release.log.read_text("utf-8")
    assert "Hung tasks stopping is skipped" in told  # or Kopf has waited five seconds for one


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--metrics-port", "0", "--health-port", "80800"],
            "--health-port 80800 is not a port: give a number from 1",
        ),
        (["--metrics-port", "18080", "--health-port", "18080"], "--metrics-port and --health-port are the same"),
    ],
    ids=["too large", "equal"],
)
def test_ports_that_make_no_sense_are_named(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZATION_WORKER_IMAGE", "worker:1")
    monkeypatch.setenv("TOKENIZATION_RAY_VERSION", "2.60.0")
    assert main(flags) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--metrics-port", "--health-port"])
def test_a_port_that_is_taken_is_named(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOKENIZATION_WORKER_IMAGE", "worker:1")
            patch.setenv("TOKENIZATION_RAY_VERSION", "2.60.0")
            assert main(["--bind-address", "127.0.0.1", "--metrics-port", "0", "--health-port", "0", flag, taken]) == 2
    said = capsys.readouterr().err
    assert f"cannot listen at 127.0.0.1 port {taken}: Address already in use. Give another one with {flag}" in said


def test_health_and_metrics_tell_how_long_ago_it_looked(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    health_port, metrics_port = hold_ports(2)
    with release.operator(health_port=health_port, metrics_port=metrics_port):
        wait_for(lambda: health(health_port), bool)

        def age_s() -> float:
            return float(json.loads(health(health_port))["lastReconcileAgeSeconds"])

        known, began = {age_s()}, time.monotonic()

        def has_looked() -> bool:
            """Since then; Kopf answers with the same number for some seconds, which says nothing of now."""
            now_s, passed_s = age_s(), time.monotonic() - began
            is_new = now_s not in known
            known.add(now_s)
            return is_new and 0 <= now_s <= passed_s

        jobs.apply("demo", local_spec(tmp_path, suspend=True))
        jobs.reach("demo", "Suspended")
        wait_for(has_looked, bool)
        metrics = get(f"http://127.0.0.1:{metrics_port}/metrics")
    assert 'tokenization_job_transitions_total{phase="Suspended",reason="Suspended"} 1.0' in metrics
    assert "tokenization_last_reconcile_age_seconds" in metrics
    assert "tokenization_queue_depth" in metrics
