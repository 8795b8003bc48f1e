"""How long a Pod insists on its reports, against a server that refuses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, cycle, repeat
from pathlib import Path

import pytest
import yaml

from support.local_servers import Handler, serve
from support.patience import Clock
from tokenization_worker.api.checkpoint import CheckpointProgress
from tokenization_worker.checkpoint import client as checkpoint_client
from tokenization_worker.checkpoint.client import CheckpointClient
from tokenization_worker.errors import TemporaryError

PROGRESS = CheckpointProgress(attempt=1)


class ApiServer:
    """Answers each request with the next of its `answers`, which are statuses."""

    def __init__(self) -> None:
        self.answers: Iterator[int] = repeat(200)
        self.reports = 0
        self.message = "not this Pod"
        self.token = ""
        """The only one that is known, if any."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """What a kubeconfig leads to in this test."""
    server = ApiServer()

    class Answers(Handler):
        def do_PATCH(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            is_known = not server.token or self.headers["authorization"] == f"Bearer {server.token}"
            status = next(server.answers) if is_known else 401
            server.reports += status == 200
            body = json.dumps({"message": server.message}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serve(Answers) as port:
        named = {"name": "here"}
        kubeconfig = {
            "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{**named, "user": {"tokenFile": str(tmp_path / "token")}}],
            "contexts": [{**named, "context": {"cluster": "here", "user": "here", "namespace": "team"}}],
            "current-context": "here",
        }
        (tmp_path / "token").write_text("first", encoding="utf-8")
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of all patience in this test."""
    clock = Clock()
    for name in ("REPORT", "REFUSED", "END", "RENEWED"):
        patience = replace(getattr(checkpoint_client, name), clock=lambda: clock.now, sleep=clock.sleep)
        monkeypatch.setattr(checkpoint_client, name, patience)
    return clock


def test_a_refused_report_is_given_up_soon_and_the_last_one_is_not(server: ApiServer, clock: Clock) -> None:
    client = CheckpointClient("demo-r1")
    server.answers = repeat(403)
    with pytest.raises(TemporaryError, match="not this Pod") as raised:
        client.report_progress(PROGRESS)
    assert raised.value.reason == "NamespaceNotPrepared"
    assert clock.now <= checkpoint_client.REFUSED.limit_s
    server.answers = chain(repeat(403, 15), repeat(200))  # an operator that is away names no writer
    client.report_progress(PROGRESS, is_last=True)
    assert server.reports == 1
    assert clock.now > 2 * checkpoint_client.REFUSED.limit_s


def test_a_policy_that_denies_reports_is_named(server: ApiServer, clock: Clock) -> None:
    server.answers = repeat(403)
    server.message = (
        "tokenizationcheckpoints 'demo-r1' is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'of-team' "
        "denied request: only we may write"
    )
    with pytest.raises(TemporaryError, match="only we may write") as raised:
        CheckpointClient("demo-r1").report_progress(PROGRESS)
    assert raised.value.reason == "ReportDenied"
    assert "ValidatingAdmissionPolicy owners and its binding of-team" in raised.value.next_step


def test_patience_ends_also_where_an_error_follows_each_refusal(server: ApiServer, clock: Clock) -> None:
    server.answers = cycle((*repeat(403, 20), 500))
    with pytest.raises(TemporaryError):
        CheckpointClient("demo-r1").report_progress(PROGRESS, is_last=True)
    assert 0.9 * checkpoint_client.END.limit_s < clock.now <= checkpoint_client.END.limit_s


HOUR_S = 3600.0


def test_the_last_report_waits_until_the_token_is_renewed(
    server: ApiServer, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CheckpointClient("demo-r1")
    server.token = "second"  # the ServiceAccount was made again
    renewed_at = 50 * 60.0

    def sleep_beside_the_kubelet(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > renewed_at:
            (tmp_path / "token").write_text("second", encoding="utf-8")

    patience = replace(checkpoint_client.RENEWED, sleep=sleep_beside_the_kubelet)
    monkeypatch.setattr(checkpoint_client, "RENEWED", patience)
    client.report_progress(PROGRESS, is_last=True)
    assert server.reports == 1
    assert renewed_at < clock.now < renewed_at + 31, "with the next try"


def test_a_token_that_is_never_renewed_is_waited_for_an_hour(server: ApiServer, clock: Clock) -> None:
    server.answers = repeat(401)
    with pytest.raises(TemporaryError) as raised:
        CheckpointClient("demo-r1").report_progress(PROGRESS, is_last=True)
    assert raised.value.reason == "NamespaceNotPrepared"
    assert 0.9 * HOUR_S < clock.now <= HOUR_S


def test_a_report_on_the_way_does_not_wait_for_a_token(server: ApiServer, clock: Clock) -> None:
    server.answers = repeat(401)
    with pytest.raises(TemporaryError):
        CheckpointClient("demo-r1").report_progress(PROGRESS)
    assert clock.now == 0
