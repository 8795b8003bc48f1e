"""`tokjob explain` tells cause and next step of jobs on a real control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.cluster.jobs import BEHIND_THE_SAMPLE, Jobs, bad_lines, local_spec, text_files, wait_for
from support.stores.gcs_fake import serve_fake_gcs
from testbed.accounts import account_kubeconfig
from testbed.cluster import Testbed
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.cli.main import main

pytestmark = pytest.mark.testbed

Explain = Callable[..., str]
TPU = {"accelerator": "tpu-v5p-slice", "topology": "2x2x1", "chipsPerHost": 4}


@pytest.fixture
def explain(bed: Testbed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Explain:
    """The screen of a job, one line a line of the terminal, which is wide enough for sentences to stay whole."""
    monkeypatch.setenv("COLUMNS", "120")

    def explain(jobs: Jobs, name: str, *more: str) -> str:
        capsys.readouterr()
        code = main(["explain", name, "-n", jobs.namespace, "--kubeconfig", str(bed.kubeconfig), *more])
        told = capsys.readouterr()
        assert not code, told.err
        if os.environ.get("SHOW_SCREENS"):
            with capsys.disabled():
                sys.stdout.write(f"\n{told.out}")
        return told.out

    return explain


def words_of(screen: str) -> str:
    """What a person reads: without line ends and indents."""
    return " ".join(screen.split())


def assert_one_screen(screen: str) -> None:
    lines = screen.splitlines()
    assert len(lines) <= 45, screen
    assert max(len(line) for line in lines if " /" not in line and "://" not in line) <= 120


def read_screen(explain: Explain, team: Jobs, name: str) -> str:
    """The words of a screen that is no longer and no wider than one."""
    screen = explain(team, name)
    assert_one_screen(screen)
    return words_of(screen)


def test_an_image_that_cannot_be_pulled(team: Jobs, tmp_path: Path, explain: Explain) -> None:
    team.apply("explain-typo", local_spec(tmp_path, image="testbed/worker:plan-run.worker-missing"))
    team.reach("explain-typo", "Starting", "ImagePullFailed")
    told = read_screen(explain, team, "explain-typo")
    assert f"{team.namespace}/explain-typo Starting ImagePullFailed" in told
    assert "cannot pull testbed/worker:plan-run.worker-missing" in told
    assert "next: Correct spec.image" in told


def test_a_queue_that_nothing_serves(team: Jobs, tmp_path: Path, explain: Explain) -> None:
    team.apply("explain-queue", local_spec(tmp_path), labels={"kueue.x-k8s.io/queue-name": "tpus"})
    wait_for(lambda: "explain-queue-r1-a1" in team.names(Kind.RAY_JOB), bool)
    team.patch(Kind.RAY_JOB, "explain-queue-r1-a1", {"spec": {"suspend": True}})  # as Kueue does
    team.reach("explain-queue", "Queued")
    told = read_screen(explain, team, "explain-queue")
    assert "next: Kueue is not installed in this cluster, so nothing admits the job." in told


def test_a_job_for_whose_workers_there_is_no_node(team: Jobs, tmp_path: Path, explain: Explain) -> None:
    team.apply("explain-homeless", local_spec(tmp_path, workers={"tpu": TPU}))
    team.reach("explain-homeless", "Starting", "Unschedulable")
    told = read_screen(explain, team, "explain-homeless")
    assert "worker Pending" in told
    assert "finds no node: 0/" in told
    assert "! FailedScheduling" in told
    assert "next: The workers ask for nodes with tpu-v5p-slice 2x2x1; the cluster has " in told
    assert "preemption" not in told


def test_a_source_that_is_not_there(team: Jobs, tmp_path: Path, explain: Explain) -> None:
    spec = local_spec(tmp_path, source={"uris": [f"file://{tmp_path}/nothing/*.jsonl"]})
    team.apply("explain-empty", spec)
    team.reach("explain-empty", "Failed", "SourceInvalid")
    told = read_screen(explain, team, "explain-empty")
    assert "Failed SourceInvalid" in told
    assert f"{tmp_path}/nothing/*.jsonl' matches no file" in told
    assert "next: Check the path" in told
    assert "If you change the job, apply it: it continues by itself." in told


def test_a_job_that_has_succeeded_shows_the_log_that_its_driver_has_left(
    team: Jobs, tmp_path: Path, explain: Explain
) -> None:
    team.apply("explain-done", local_spec(tmp_path))
    status = team.reach("explain-done", "Succeeded")
    log = tmp_path / "out/_tokenization/logs/1-1.log.zst"
    assert log.exists()
    assert status["attempt"]["logUri"] == str(log)
    told = read_screen(explain, team, "explain-done")
    assert f"log that the driver has left: {log}" in told
    assert " done 2,000 read" in told
    assert "next: Nothing to do: the dataset is complete" in told


def test_a_driver_that_fails_leaves_a_log_that_says_why(team: Jobs, tmp_path: Path, explain: Explain) -> None:
    text_files(tmp_path / "src")
    bad_lines(tmp_path / "src" / "bad.jsonl", good=BEHIND_THE_SAMPLE)
    team.apply("explain-dirty", local_spec(tmp_path, maxQuarantined=3))
    status = team.reach("explain-dirty", "Failed", "QuarantineExceeded")
    assert status["attempt"]["logUri"].endswith("/out/_tokenization/logs/1-1.log.zst")
    told = read_screen(explain, team, "explain-dirty")
    assert "log that the driver has left:" in told
    assert "tokjob: QuarantineExceeded: 9 of 4,009 documents" in told
    assert "The documents: `tokjob show --quarantined /" in told


def test_another_job_at_the_output_of_a_run_is_advised_to_wait(team: Jobs, explain: Explain) -> None:
    with serve_fake_gcs() as fake:
        fake.put("corpus/a.jsonl", b'{"text": "some text"}\n')
        spec = {
            "source": {"uris": ["gs://bucket/corpus/"]},
            "tokenizer": {"name": "gpt2"},
            "output": {"uri": "gs://bucket/out"},
            "env": [{"name": "STORAGE_EMULATOR_HOST", "value": fake.url}],
        }
        team.apply("explain-first", spec | {"suspend": True})
        team.reach("explain-first", "Suspended")
        fake.put("out/_tokenization/alive/host-1-00000000", b"A run goes on here.\n")
        team.apply("explain-second", spec | {"tokenizer": {"name": "cl100k_base"}})
        status = team.reach("explain-second", "Failed", "OutputConflict")
    assert "wait until it has ended" in status["message"]
    assert "clean" not in words_of(explain(team, "explain-second"))


def test_a_job_that_no_operator_has_seen(jobs: Jobs, tmp_path: Path, explain: Explain) -> None:
    jobs.apply("explain-unseen", local_spec(tmp_path))
    told = words_of(explain(jobs, "explain-unseen"))
    assert (
        f"next: The operator has not processed this job. Check that it runs and watches namespace {jobs.namespace}:"
        in told
    )
    assert "kubectl get deploy -A -l app.kubernetes.io/name=tokenization-operator`" in told


def test_json_has_the_same(jobs: Jobs, tmp_path: Path, explain: Explain) -> None:
    jobs.apply("explain-json", local_spec(tmp_path))
    found: dict[str, Any] = json.loads(explain(jobs, "explain-json", "--json"))
    assert (found["namespace"], found["name"], found["phase"]) == (jobs.namespace, "explain-json", "Pending")
    assert found["next_step"].startswith("The operator has not processed this job")


def test_what_may_not_be_read_is_said_and_the_rest_is_shown(
    jobs: Jobs, bed: Testbed, api: client.ApiClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.apply("explain-poor", local_spec(tmp_path))
    rules = [{"apiGroups": ["tokenization.dev"], "resources": ["tokenizationjobs"], "verbs": ["get"]}]
    named = {"namespace": jobs.namespace, "name": "reader"}
    bed.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": named, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader"}],
        },
    )
    kubeconfig = account_kubeconfig(api, jobs.namespace, "reader", tmp_path / "reader")
    where = ["-n", jobs.namespace, "--kubeconfig", str(kubeconfig)]
    wait_for(lambda: main(["explain", "explain-poor", *where]), lambda code: code == 0)
    told = capsys.readouterr().out
    assert f"not shown Pods of namespace {jobs.namespace}: pods is forbidden" in told
    assert f"not shown events of namespace {jobs.namespace}: events is forbidden" in told
    assert "next:     The operator has not processed this job" in told
    assert main(["explain", "another", *where]) == 2
    assert "has no TokenizationJob 'another'" in capsys.readouterr().err


def test_a_job_that_is_not_there_names_what_is_near(
    jobs: Jobs, bed: Testbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.apply("explain-near", local_spec(tmp_path))
    kubeconfig = ["--kubeconfig", str(bed.kubeconfig)]
    assert main(["explain", "explain-naer", "-n", jobs.namespace, *kubeconfig]) == 2
    assert "did you mean explain-near?" in capsys.readouterr().err
    assert main(["explain", "explain-near", *kubeconfig]) == 2
    assert f"there is one in another namespace: -n {jobs.namespace}" in capsys.readouterr().err


def test_kubectl_runs_it_as_its_own_command(jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    jobs.apply("explain-plugin", local_spec(tmp_path))
    path = f"{bed.commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["kubectl", "tokjob", "explain", "tkj/explain-plugin", "-n", jobs.namespace],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(bed.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{jobs.namespace}/explain-plugin" in done.stdout
