"""The chart's dashboard and alerts on a real Prometheus, which scrapes real operators while jobs run, fail and wait."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from support.cluster.held import hold
from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.namespaces import new_namespace
from support.cluster.operators import CHART, Process, Release, render, stop
from testbed.api_proxy import ApiProxy, Asked
from testbed.cluster import Testbed
from testbed.ports import hold_ports
from testbed.programs import Unavailable
from testbed.prometheus import Prometheus, find_prometheus, promtool
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.types.times import time_text

pytestmark = [pytest.mark.testbed, pytest.mark.slow, pytest.mark.usefixtures("prometheus_is_there")]

STUCK_S = 25
QUICK_FOR = {
    "operatorDown": "20s",
    "operatorStuck": "2s",
    "jobFailed": "2s",
    "jobStalled": "2s",
    "jobRetrying": "5s",
    "jobQuarantine": "2s",
}
QUICK = {
    "enabled": True,
    "maxReconcileAgeSeconds": STUCK_S,
    "maxReconcileFailures": 5,
    "for": QUICK_FOR,
}
"""A cause is not given minutes here."""

DASHBOARD = CHART / "files" / "dashboard.json"


@pytest.fixture(scope="session")
def prometheus_is_there() -> None:
    """Skips where there is none; where it can be installed and has to be, that is a failure."""
    try:
        find_prometheus()
    except Unavailable as error:
        if os.environ.get("REQUIRE_TESTBED") and shutil.which("apt-get"):
            raise
        pytest.skip(str(error))


def write_rules(folder: Path, **values: Any) -> Path:
    """The rules of the chart as a file of Prometheus."""
    objects = render("team", f"metrics.prometheusRule={json.dumps({'enabled': True, **values})}")
    [found] = [each for each in objects if each["kind"] == "PrometheusRule"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": found["spec"]["groups"]}), encoding="utf-8")
    return path


def panels() -> list[tuple[str, str]]:
    """Title and query of all that the dashboard shows, as Grafana sends them for all namespaces."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [
        (each["title"], target["expr"].replace("$job_namespace", ".*"))
        for each in board["panels"]
        for target in each.get("targets", ())
    ]


class Scene:
    """An operator that Prometheus scrapes, and the jobs of its namespace."""

    def __init__(self, jobs: Jobs, operator: Process, prometheus: Prometheus, folder: Path) -> None:
        self.jobs = jobs
        self.operator = operator
        self.prometheus = prometheus
        self.folder = folder


@contextmanager
def staged(
    bed: Testbed, api: client.ApiClient, folder: Path, *, server: str | None = None, **more: str
) -> Iterator[Scene]:
    """`server`: of the API, for the operator; `more`: of its environment."""
    rules = write_rules(folder, **QUICK)
    [port] = hold_ports(1)
    with new_namespace(api) as name:
        release = Release(bed, api, name, folder)
        with release.operator(metrics_port=port, server=server, **more) as process:
            wait_for(lambda: answers(port), bool)  # else it is down at first
            with Prometheus(folder / "prometheus", port, rules) as prometheus:
                wait_for(lambda: prometheus.query("tokenization_jobs"), bool)
                yield Scene(Jobs(api, name), process, prometheus, folder)


def answers(port: int) -> bool:
    """Whether an operator tells its metrics there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return b"tokenization_jobs{" in answer.read()
    except OSError:
        return False


AGES = timedelta(hours=-1)
NOT_YET = timedelta(hours=1)
"""As of a driver that completes a range again and again."""


@pytest.fixture(scope="module")
def scene(bed: Testbed, api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One job for each alert of jobs, one that runs well, and one whose plan and driver are real."""
    with staged(bed, api, tmp_path_factory.mktemp("scene")) as scene:
        jobs, folder = scene.jobs, scene.folder
        jobs.apply("real", local_spec(folder / "real"))
        jobs.apply("broken", local_spec(folder / "real", source={"uris": [f"file://{folder}/nothing/*.jsonl"]}))
        jobs.apply("retrying", local_spec(folder / "real", image="testbed/worker:plan-exit1", infraRetryLimit=1000))
        hold(jobs, "well", folder, last_range=NOT_YET)
        hold(jobs, "stalled", folder, last_range=AGES, stallTimeoutSeconds=10**6)
        ages_ago = time_text(datetime.now(UTC) + AGES)
        began = {"attempt": {"runningTime": ages_ago, "progressTime": ages_ago}}
        jobs.patch(Kind.JOB, "stalled", began, is_status=True)
        hold(jobs, "quarantine", folder, last_range=NOT_YET, quarantined=6)
        jobs.reach("real", "Succeeded")
        jobs.reach("broken", "Failed")
        yield scene


@pytest.mark.parametrize("query", [pytest.param(query, id=title) for title, query in panels()])
def test_every_panel_shows_something(scene: Scene, query: str) -> None:
    found = wait_for(lambda: scene.prometheus.query(query), bool)
    assert all(each["value"][1] != "NaN" for each in found), found


def test_panels_show_what_jobs_say_of_themselves(scene: Scene) -> None:
    jobs, prometheus = scene.jobs, scene.prometheus
    status = jobs.status("real")

    def numbers(metric: str) -> dict[str, float]:
        found = prometheus.query(f'{metric}{{job_namespace="{jobs.namespace}"}}')
        return {each["metric"]["job_name"]: float(each["value"][1]) for each in found}

    wait_for(lambda: numbers("tokenization_job_progress_ratio").get("real"), lambda share: share == 1)
    tokens = wait_for(lambda: numbers("tokenization_job_tokens").get("real"), bool)
    assert tokens == status["progress"]["tokens"]
    wait_for(lambda: numbers("tokenization_job_quarantined_limit_ratio").get("quarantine"), lambda share: share == 0.6)
    wait_for(lambda: numbers("tokenization_job_attempts").get("well"), lambda attempts: attempts == 1)
    [runs] = wait_for(lambda: prometheus.query('tokenization_run_duration_seconds_count{outcome="Succeeded"}'), bool)
    assert runs["value"][1] == "1"


def test_each_alert_of_a_job_fires_for_its_cause_and_for_no_other(scene: Scene) -> None:
    wanted = {
        ("TokenizationJobFailed", "broken"),
        ("TokenizationJobStalled", "stalled"),
        ("TokenizationJobRetrying", "retrying"),
        ("TokenizationJobQuarantine", "quarantine"),
    }
    wait_for(scene.prometheus.ever_firing, lambda found: found >= wanted)
    assert fired_by_later_evaluations(scene.prometheus) == wanted


def fired_by_later_evaluations(prometheus: Prometheus) -> set[tuple[str, str]]:
    """What has fired once every rule had its time: another alert may be pending when the first ones fire."""
    longest = max(int(each.removesuffix("s")) for each in QUICK_FOR.values())
    begin = prometheus.last_evaluation()
    wait_for(prometheus.last_evaluation, lambda last: last > begin + timedelta(seconds=longest))
    full = prometheus.last_evaluation()
    wait_for(prometheus.last_evaluation, lambda last: last > full)
    return prometheus.ever_firing()


def test_an_alert_that_fires_later_is_seen(tmp_path: Path) -> None:
    late = {"alert": "Late", "expr": "vector(1)", "for": QUICK_FOR["operatorDown"]}
    groups = [{"name": "all", "rules": [{"alert": "Early", "expr": "vector(1)"}, late]}]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    [unused] = hold_ports(1)
    with Prometheus(tmp_path / "prometheus", unused, tmp_path / "rules.yaml") as prometheus:
        wait_for(prometheus.ever_firing, lambda found: ("Early", "") in found)
        assert fired_by_later_evaluations(prometheus) == {("Early", ""), ("Late", "")}


def test_an_operator_that_is_gone_fires_one_alert(bed: Testbed, api: client.ApiClient, tmp_path: Path) -> None:
    with staged(bed, api, tmp_path) as scene:
        assert not scene.prometheus.ever_firing()
        stop(scene.operator)
        fired = wait_for(scene.prometheus.ever_firing, bool)
    assert fired == {("TokenizationOperatorDown", "")}


def test_an_operator_that_looks_at_nothing_fires_one_alert(bed: Testbed, api: client.ApiClient, tmp_path: Path) -> None:
    with staged(bed, api, tmp_path, TOKENIZATION_RESYNC_SECONDS="3600") as scene:
        too_old = f"tokenization_last_reconcile_age_seconds > {STUCK_S}"
        wait_for(lambda: scene.prometheus.query(too_old), bool)
        fired = wait_for(scene.prometheus.ever_firing, bool)
    assert fired == {("TokenizationOperatorStuck", "")}


def test_an_operator_that_may_not_write_fires_one_alert(bed: Testbed, api: client.ApiClient, tmp_path: Path) -> None:
    def refuse(asked: Asked) -> int | None:
        return 500 if asked.method == "PATCH" and asked.path.endswith("/status") else None

    with ApiProxy.of(api) as proxy:
        proxy.answer = refuse
        with staged(bed, api, tmp_path, server=proxy.url) as scene:
            for number in range(4):
                scene.jobs.apply(f"job-{number}", local_spec(tmp_path / "job"))
            fired = wait_for(scene.prometheus.ever_firing, bool)
    assert fired == {("TokenizationReconcileFailures", "")}


WHERE = '{job_namespace="team", job_name="demo"'
AT_WORK = (f'tokenization_job_phase{WHERE}, phase="Running", reason="Running"}}', "1x90")
DEFAULTS = {
    "TokenizationOperatorDown": ([("tokenization_last_reconcile_age_seconds", "1x4 stale")], 9, 11),
    "TokenizationOperatorStuck": ([("tokenization_last_reconcile_age_seconds", "0+60x30")], 9, 12),
    "TokenizationReconcileFailures": ([("tokenization_reconcile_failures_total", "0x10 0+2x30")], 15, 26),
    "TokenizationJobFailed": (
        [(f'tokenization_job_phase{WHERE}, phase="Failed", reason="SourceInvalid"}}', "1x30")],
        0,
        2,
    ),
    "TokenizationJobStalled": (
        [AT_WORK, (f"tokenization_job_last_progress_timestamp_seconds{WHERE}}}", "0x90")],
        20,
        22,
    ),
    "TokenizationJobRetrying": (
        [
            (f'tokenization_job_phase{WHERE}, phase="Retrying", reason="HeadLost"}}', "1x20 stale"),
            (f'tokenization_job_phase{WHERE}, phase="Starting", reason="ClusterRequested"}}', "_x20 1x70"),
            (f"tokenization_job_failures{WHERE}}}", "1x90"),
        ],
        29,
        31,
    ),
    "TokenizationJobQuarantine": (
        [AT_WORK, (f"tokenization_job_quarantined_limit_ratio{WHERE}}}", "0.5x3 0.51x30")],
        8,
        10,
    ),
}
"""Of each alert: what happens, minute by minute; until when it is quiet, and when it fires."""


@pytest.mark.parametrize("alert", DEFAULTS)
def test_by_default_an_alert_fires_after_minutes_and_not_before(alert: str, tmp_path: Path) -> None:
    series, quiet_at, fires_at = DEFAULTS[alert]
    if alert != "TokenizationOperatorDown":
        series = [*series, ("tokenization_last_reconcile_age_seconds", "1x90")][: len(series) + ("Stuck" not in alert)]
    asked = {
        "rule_files": [str(write_rules(tmp_path))],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
                    }
                    for minute, names in ((quiet_at, ()), (fires_at, (alert,)))
                ],
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(asked), encoding="utf-8")
    promtool("test", "rules", path)


def test_all_alerts_are_tried_and_prometheus_finds_no_fault_in_their_rules(tmp_path: Path) -> None:
    path = write_rules(tmp_path)
    promtool("check", "rules", path)
    [group] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    assert {rule["alert"] for rule in group["rules"]} == DEFAULTS.keys()
