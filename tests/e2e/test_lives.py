"""What users do with their jobs on a real node."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.node import RealCluster
from e2e.runs import NAME, RUN_S, TOO_LATE, Team
from e2e.steps import step
from support.cluster.jobs import wait_for
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.e2e


def test_a_new_token_makes_a_new_run(team: Team, expected: Path) -> None:
    team.jobs.apply(NAME, team.spec("out-{rerunToken}", rerunToken="1"))
    with step("succeed once"):
        team.succeed(NAME)
    team.jobs.edit(NAME, {"rerunToken": "2"})
    with step("succeed again"):
        status = team.jobs.wait(
            NAME, lambda status: status["run"]["number"] == 2 and status["phase"] == "Succeeded", RUN_S
        )
    assert status["reason"] == "Committed"
    for token in ("1", "2"):
        team.prove(expected, f"out-{token}")


def test_a_job_that_is_made_again_finds_its_dataset_complete(team: Team, expected: Path) -> None:
    team.jobs.apply(NAME, team.spec())
    with step("succeed once"):
        team.succeed(NAME, "Committed")
    team.clear()
    team.jobs.apply(NAME, team.spec())
    with step("find it complete"):
        team.succeed(NAME, "AlreadyComplete")
    assert team.jobs.names(Kind.RAY_JOB) == []
    team.prove(expected)


def test_a_suspended_job_has_no_pods_and_goes_on_where_it_was(team: Team, expected: Path) -> None:
    team.begin()
    team.jobs.edit(NAME, {"suspend": True})
    with step("reach Suspended"):
        team.jobs.reach(NAME, "Suspended")
        wait_for(lambda: team.pods(NAME, "head") + team.pods(NAME, "worker"), lambda pods: not pods)
    done = team.count_done()
    assert done < team.jobs.status(NAME)["progress"]["rangesTotal"], TOO_LATE
    receipts = team.receipts()
    team.jobs.edit(NAME, {"suspend": False})
    with step("succeed"):
        team.succeed(NAME)
    assert receipts <= team.receipts(), "what was done has been done again"
    team.prove(expected)


def test_a_deleted_job_leaves_its_output_alone(cluster: RealCluster, team: Team, expected: Path) -> None:
    team.begin()
    team.jobs.delete(NAME)
    with step("see all that it owned go"):
        for kind in (Kind.POD, Kind.RAY_JOB, Kind.PLAN_JOB, Kind.CHECKPOINT):
            wait_for(lambda kind=kind: team.jobs.names(kind), lambda names: not names)  # type: ignore[misc]
        wait_for(lambda: owned_things(cluster, team), lambda names: not names)
    receipts = team.receipts()
    assert receipts
    team.jobs.apply(NAME, team.spec())
    with step("succeed"):
        team.succeed(NAME)
    assert receipts <= team.receipts()
    team.prove(expected)


def owned_things(cluster: RealCluster, team: Team) -> list[str]:
    """What KubeRay and the plan have made."""
    return cluster.do("-n", team.jobs.namespace, "get", "rayclusters,services,jobs", "-o", "name").split()


def test_two_teams_cannot_touch_each_others_checkpoints(
    cluster: RealCluster, new_team: Callable[[], Team], expected: Path
) -> None:
    teams = [new_team(), new_team()]
    for team in teams:
        team.jobs.apply(NAME, team.spec(replicas=1))
    mine, theirs = teams
    for team in teams:
        wait_for(lambda team=team: team.jobs.names(Kind.CHECKPOINT), bool, RUN_S)  # type: ignore[misc]
    mine.wait_for_ranges(1)
    head = mine.pods(NAME, "head")[0]["metadata"]["name"]
    make_checkpoint_of_another_job(mine)
    for namespace, checkpoint, code in (
        (mine.jobs.namespace, "corpus-r1", 200),
        (mine.jobs.namespace, "another-r1", 403),
        (theirs.jobs.namespace, "corpus-r1", 403),
    ):
        words = ("python", "-c", _PATCH, namespace, checkpoint)
        said = cluster.kubectl("-n", mine.jobs.namespace, "exec", head, "--", *words)
        assert said.stdout.split() == [str(code)], said.stdout + said.stderr
    with step("succeed, both"):
        for team in teams:
            team.succeed(NAME)
    for team in teams:
        team.prove(expected)


def make_checkpoint_of_another_job(team: Team) -> None:
    """As the one of the job `corpus`, but of `another`, whose Pods have other names."""
    body = copy.deepcopy(team.jobs.get("corpus-r1", Kind.CHECKPOINT))
    body["metadata"] = {"name": "another-r1"}
    body["spec"] = json.loads(json.dumps(body["spec"]).replace("corpus-r1", "another-r1"))
    team.jobs.create(Kind.CHECKPOINT, body)


_PATCH = """
import sys, json, ssl, urllib.request, urllib.error
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
url = f"https://kubernetes.default.svc.cluster.local/apis/tokenization.dev/v1alpha1/namespaces/{sys.argv[1]}"
request = urllib.request.Request(f"{url}/tokenizationcheckpoints/{sys.argv[2]}/status", b"{}", method="PATCH", headers={
    "Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/merge-patch+json"})
try:
    print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt")).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
