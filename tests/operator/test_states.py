"""What an operator must get right on a real API server, beside the story itself."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.cluster.jobs import DEADLINE_S, Jobs, local_spec, wait_for
from support.cluster.operators import NEVER_AGAIN, Release
from testbed.accounts import account_kubeconfig
from testbed.api_proxy import ApiProxy, Asked
from testbed.cluster import Testbed
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.metadata import API_VERSION

pytestmark = pytest.mark.testbed

OPERATOR_OPTIONS = NEVER_AGAIN
HOLDS = "testbed/worker:plan-run.driver-hold"
ARGO = {"argocd.argoproj.io/tracking-id": "jobs:tokenization.dev/TokenizationJob:team/demo"}


def test_the_operator_writes_nothing_but_the_status(team: Jobs, tmp_path: Path) -> None:
    made = team.apply("clean", local_spec(tmp_path))
    team.reach("clean", "Succeeded")
    found = team.get("clean")
    assert found["metadata"]["generation"] == 1
    assert found["spec"] == made["spec"]
    for field in ("finalizers", "annotations", "labels"):
        assert field not in found["metadata"]
    writers = {each["manager"]: each for each in found["metadata"]["managedFields"] if each.get("subresource")}
    assert {each["subresource"] for each in writers.values()} == {"status"}


def test_a_job_is_deleted_while_no_operator_is_there(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    with release.operator(image=HOLDS):
        jobs.apply("demo", local_spec(tmp_path))
        jobs.wait_for_driver("demo")
    jobs.delete("demo")
    for kind in (Kind.JOB, Kind.CHECKPOINT, Kind.RAY_JOB, Kind.PLAN_JOB, Kind.POD):
        wait_for(lambda kind=kind: jobs.names(kind), lambda left: not left)  # type: ignore[misc]


def test_two_operators_make_one_ray_job(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(3)]
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(release.operator(image=HOLDS))
        for name in names:
            jobs.apply(name, local_spec(tmp_path / name))
        for name in names:
            jobs.wait_for_driver(name)
    assert jobs.names(Kind.RAY_JOB) == [f"{name}-r1-a1" for name in names]
    assert jobs.names(Kind.PLAN_JOB) == [f"{name}-r1-p1" for name in names]
    assert not release.errors()


@pytest.mark.parametrize("plural", ["jobs", "tokenizationcheckpoints", pytest.param("rayjobs", marks=pytest.mark.core)])
def test_an_operator_killed_before_it_makes_a_child_makes_it_once(
    plural: str, release: Release, jobs: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    with ApiProxy.of(api) as proxy, release.operator(image=HOLDS, server=proxy.url) as process:

        def kill(asked: Asked) -> int | None:
            if asked.method == "POST" and asked.path.endswith(f"/{plural}"):
                process.kill()
                return 503
            return None

        proxy.answer = kill
        jobs.apply("demo", local_spec(tmp_path))
        process.wait(DEADLINE_S)
        proxy.answer = lambda asked: None
    with release.operator(image=HOLDS):
        jobs.wait_for_driver("demo")
    assert jobs.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    assert jobs.names(Kind.PLAN_JOB) == ["demo-r1-p1"]
    assert jobs.names(Kind.CHECKPOINT) == ["demo-r1"]


def test_what_a_deleted_namesake_has_left_is_not_taken_for_ones_own(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    team.apply("twin", local_spec(tmp_path / "one"))
    team.reach("twin", "Succeeded")
    orphaned = bed.kubectl("-n", team.namespace, "delete", "tkj", "twin", "--cascade=orphan")
    assert not orphaned.returncode, orphaned.stderr
    assert team.get("twin-r1", Kind.CHECKPOINT)["status"]["committed"]
    team.apply("twin", local_spec(tmp_path / "two"))
    status = team.reach("twin", "Planning", "NameTaken")
    assert "TokenizationCheckpoint twin-r1 has another owner" in status["message"]
    team.delete("twin-r1", Kind.CHECKPOINT)
    team.delete("twin-r1-a1", Kind.RAY_JOB)
    bed.kubectl("-n", team.namespace, "delete", "job", "twin-r1-p1")
    team.reach("twin", "Succeeded", "Committed")
    assert (tmp_path / "two" / "out" / "index.json").exists()


def test_a_job_made_again_at_once_verifies_the_existing_dataset(team: Jobs, tmp_path: Path) -> None:
    team.apply("again", local_spec(tmp_path))
    first = team.reach("again", "Succeeded")
    team.delete("again")
    team.apply("again", local_spec(tmp_path))
    second = team.reach("again", "Succeeded", "AlreadyComplete")
    assert second["output"] == first["output"]
    assert "attempt" not in second


def test_a_ray_job_of_another_owner_is_left_alone(team: Jobs, tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "ray-head", "image": "none"}]}}
    foreign = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "taken-r1-a1"},
        "spec": {
            "suspend": True,
            "shutdownAfterJobFinishes": True,
            "entrypoint": "true",
            "rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": template}},
        },
    }
    uid = team.create(Kind.RAY_JOB, foreign)["metadata"]["uid"]
    team.apply("taken", local_spec(tmp_path))
    team.reach("taken", "Starting", "NameTaken")
    assert team.get("taken-r1-a1", Kind.RAY_JOB)["metadata"]["uid"] == uid
    team.delete("taken-r1-a1", Kind.RAY_JOB)
    team.reach("taken", "Succeeded")


def test_a_stopped_ray_job_is_no_success(team: Jobs, tmp_path: Path) -> None:
    team.apply("stopped", local_spec(tmp_path, image=HOLDS))
    team.wait_for_driver("stopped")
    team.patch(
        Kind.RAY_JOB, "stopped-r1-a1", {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, is_status=True
    )
    team.reach("stopped", "Retrying", "RayJobStopped")
    team.delete("stopped")


def test_a_commit_outranks_a_ray_job_that_failed(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    with release.operator():
        jobs.apply("proved", local_spec(tmp_path, image=HOLDS))
        jobs.wait_for_driver("proved")
    failed = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}
    jobs.patch(Kind.RAY_JOB, "proved-r1-a1", failed, is_status=True)
    run = jobs.get("proved-r1", Kind.CHECKPOINT)["spec"]["run"]
    proof = {"jobUid": run["jobUid"], "run": 1, "runKey": run["runKey"], "indexUri": "file:///x/index.json"}
    jobs.patch(Kind.CHECKPOINT, "proved-r1", {"committed": proof | {"indexDigest": "0" * 64}}, is_status=True)
    with release.operator():
        assert "lastFailures" not in jobs.reach("proved", "Succeeded", "Committed")


def test_a_job_is_suspended_resumed_and_run_again(team: Jobs, tmp_path: Path) -> None:
    spec = local_spec(tmp_path, image=HOLDS)
    team.apply("paused", spec)
    team.wait_for_driver("paused")
    team.edit("paused", {"suspend": True})
    team.reach("paused", "Suspended")
    wait_for(lambda: [name for name in team.names(Kind.POD) if name.startswith("paused-r1-a1")], lambda left: not left)
    team.edit("paused", {"suspend": False, "image": "testbed/worker:plan-run.driver-run"})
    status = team.reach("paused", "Succeeded", "Committed")
    assert (status["run"]["number"], status["attempt"]["number"]) == (1, 2)
    assert "failures" not in status
    team.edit("paused", {"rerunToken": "2"})
    status = team.reach("paused", "Succeeded", "AlreadyComplete")
    assert status["run"]["number"] == 2
    assert team.names(Kind.RAY_JOB).count("paused-r2-a1") == 0


@pytest.mark.parametrize("annotations", [{}, ARGO], ids=["by hand", "by Argo CD"])
def test_a_finished_job_goes_when_its_time_has_come_unless_a_tool_would_make_it_again(
    annotations: dict[str, str], release: Release, jobs: Jobs, tmp_path: Path
) -> None:
    with release.operator():
        jobs.apply("demo", local_spec(tmp_path, ttlSecondsAfterFinished=1), annotations=annotations)
        if annotations:
            jobs.reach("demo", "Succeeded")
            told = wait_for(lambda: [each for each in jobs.events("demo") if each[1] == "TtlIgnored"], bool)
            assert "Argo CD would create the job again" in told[0][2]
            jobs.edit("demo", {"ttlSecondsAfterFinished": 2})
            jobs.wait("demo", lambda status: status["observedGeneration"] == 2)
        else:
            wait_for(lambda: jobs.names(Kind.JOB), lambda left: not left)
    assert jobs.names(Kind.JOB) == (["demo"] if annotations else [])
    assert (tmp_path / "out" / "index.json").exists()


def test_a_pod_of_a_job_may_report_and_nothing_else(
    team: Jobs, api: client.ApiClient, bed: Testbed, tmp_path: Path
) -> None:
    account = account_kubeconfig(api, team.namespace, "tokenization-worker", tmp_path / "kubeconfig")

    def may(verb: str, what: str) -> bool:
        words = [verb, *what.split()]
        return not bed.kubectl("auth", "can-i", *words, "-n", team.namespace, kubeconfig=account).returncode

    assert may("get", "tokenizationcheckpoints")
    assert may("patch", "tokenizationcheckpoints --subresource=status")
    for verb, what in (
        ("patch", "tokenizationcheckpoints"),
        ("list", "tokenizationcheckpoints"),
        ("get", "tokenizationjobs"),
        ("patch", "tokenizationjobs --subresource=status"),
        ("create", "rayjobs"),
        ("get", "secrets"),
        ("list", "pods"),
        ("create", "pods"),
    ):
        assert not may(verb, what), f"{verb} {what}"


@pytest.mark.parametrize(
    ("verb", "what", "is_allowed"),
    [
        ("patch", "tokenizationjobs --subresource=status", True),
        ("delete", "tokenizationjobs", True),
        ("create", "rayjobs", True),
        ("patch", "tokenizationjobs", False),
        ("patch", "rayjobs", False),
        ("patch", "tokenizationcheckpoints --subresource=status", False),
        ("get", "secrets", False),
        ("get", "configmaps", False),
        ("create", "pods", False),
        ("create", "pods --subresource=exec", False),
        ("create", "roles", False),
        ("create", "serviceaccounts", False),
    ],
)
def test_the_operator_may_do_what_it_does_and_nothing_else(
    verb: str, what: str, is_allowed: bool, release: Release, api: client.ApiClient, bed: Testbed, tmp_path: Path
) -> None:
    namespace = release.namespace
    account = account_kubeconfig(api, namespace, release.account, tmp_path / "kubeconfig")
    asked = bed.kubectl("auth", "can-i", verb, *what.split(), "-n", namespace, kubeconfig=account)
    assert (asked.stdout.strip() == "yes") == is_allowed, asked


def test_kubectl_refuses_fields_that_there_are_not(bed: Testbed, namespace: str) -> None:
    manifest: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": Kind.JOB,
        "metadata": {"name": "typo", "namespace": namespace},
        "spec": {"source": {"uris": ["gs://a/b"]}, "tokenizer": {"name": "gpt2"}, "output": {"url": "gs://a/c"}},
    }
    done = bed.kubectl("apply", "-f", "-", text=json.dumps(manifest))
    assert done.returncode
    assert 'unknown field "spec.output.url"' in done.stderr


def test_kubectl_shows_and_explains_jobs(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    team.apply("shown", local_spec(tmp_path))
    team.reach("shown", "Succeeded")

    def say(*words: str) -> str:
        done = bed.kubectl("-n", team.namespace, *words)
        assert not done.returncode, done.stderr
        return done.stdout

    header, row = say("get", "tkj", "shown").splitlines()
    assert header.split() == ["NAME", "PHASE", "REASON", "PROGRESS", "RATE", "ETA", "WORKERS", "ATTEMPT", "AGE"]
    assert row.split()[:4] == ["shown", "Succeeded", "Committed", "100%"]
    wide = say("get", "tkj", "shown", "-o", "wide")
    assert {"DURATION", "COST", "OUTPUT"} <= set(wide.split())
    assert f"{tmp_path}/out" in wide
    told = say("describe", "tkj", "shown")
    steps = ["Planning", "Planned", "ClusterRequested", "Committed"]  # what lies between may pass in a moment
    places = [told.index(f"  {step}  ") for step in steps if f"  {step}  " in told]
    assert len(places) == len(steps), told
    assert places == sorted(places), told
    assert "leading shards" in say("explain", "tkj.spec.output.splits")
    say("wait", "--for=condition=Complete", "tkj/shown", f"--timeout={DEADLINE_S:.0f}s")


def test_what_people_see_of_a_run_is_kept_by_the_api_server(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    team.apply("seen", local_spec(tmp_path, image=HOLDS))
    team.wait_for_driver("seen")
    counted = {"attempt": 1, "rangesTotal": 4, "rangesCompleted": 1}  # before that, a changed job begins it anew
    team.patch(Kind.CHECKPOINT, "seen-r1", {"progress": counted}, is_status=True)
    team.reach("seen", "Running")
    assert team.status("seen")["output"] == {"uri": f"{tmp_path}/out"}
    team.edit("seen", {"workers": {"replicas": 2}})
    told = "workers 1 → 2: from the next attempt"
    team.wait("seen", lambda status: status["attempt"].get("pendingChanges") == told)
    assert wait_for(lambda: [each for each in team.events("seen") if each[1] == "ChangedForNextAttempt"], bool)
    team.edit("seen", {"suspend": True})
    status = team.reach("seen", "Suspended")
    assert float(status["cost"]["hostHours"]) > 0
    assert status["attempt"]["machines"] == {"hosts": 1, "chips": 0, "cpus": "5"}
    [suspended] = [each for each in status["conditions"] if each["type"] == "Suspended"]
    assert suspended["status"] == "True"
    team.edit("seen", {"suspend": False, "image": "testbed/worker:plan-run.driver-run"})
    status = team.reach("seen", "Succeeded", "Committed")
    assert status["startTime"] < status["completionTime"]
    assert status["display"]["duration"] in status["message"]
    assert status["output"].keys() == {"uri", "indexUri", "indexDigest", "digest", "tokens", "fingerprint"}
    assert [each["type"] for each in status["conditions"]] == ["Accepted", "Planned", "Complete", "Ready"]
    explained = bed.kubectl("explain", "tkj.spec.imagePullPolicy").stdout
    assert "applies to the next attempt. Example: IfNotPresent" in " ".join(explained.split())
