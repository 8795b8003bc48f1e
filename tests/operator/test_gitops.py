"""Edits as commits make them: each does what the documentation says, with so many runs and RayJobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.cluster.jobs import BEHIND_THE_SAMPLE, Jobs, bad_lines, job_manifest, local_spec, text_files
from testbed.cluster import Testbed

pytestmark = pytest.mark.testbed


def commit(team: Jobs, bed: Testbed, name: str, spec: dict[str, Any]) -> str:
    """Apply a manifest as GitOps tools do; what the API server says against it, if it does."""
    manifest = job_manifest(name, spec, namespace=team.namespace)
    return bed.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(manifest)).stderr


def test_a_typo_is_corrected_before_there_is_a_plan(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    spec = local_spec(tmp_path)
    wrong = spec | {"source": {**spec["source"], "textField": "body"}}
    assert not commit(team, bed, "typo", wrong)
    team.reach("typo", "Failed", "SourceInvalid")
    assert not commit(team, bed, "typo", spec)
    status = team.reach("typo", "Succeeded")
    assert (status["run"]["number"], team.count_attempts("typo")) == (2, 1)


def test_data_of_a_planned_job_change_only_with_a_token_and_an_output_of_its_own(
    team: Jobs, bed: Testbed, tmp_path: Path
) -> None:
    spec = local_spec(tmp_path)
    assert not commit(team, bed, "fixed", spec)
    team.reach("fixed", "Succeeded")
    other = spec | {"source": {"uris": [text_files(tmp_path / "other", files=2)]}}
    refused = commit(team, bed, "fixed", other)
    assert "rerunToken" in refused, refused
    refused = commit(team, bed, "fixed", other | {"rerunToken": "2"})
    assert "{rerunToken}" in refused, refused
    assert team.get("fixed")["spec"]["source"] == spec["source"] | {
        "format": "Auto",
        "textField": "text",
        "idField": "id",
    }
    moved = other | {"rerunToken": "2", "output": {"uri": f"file://{tmp_path}/two"}}
    assert not commit(team, bed, "fixed", moved)
    status = team.reach("fixed", "Succeeded", "Committed")
    status = team.wait("fixed", lambda status: status["run"]["number"] == 2 and status["phase"] == "Succeeded")
    assert (status["output"]["uri"], team.count_attempts("fixed")) == (f"{tmp_path}/two", 2)


@pytest.mark.core
def test_one_commit_is_one_run_and_a_revert_verifies_the_existing_dataset(
    team: Jobs, bed: Testbed, tmp_path: Path
) -> None:
    one = local_spec(tmp_path, rerunToken="one", output={"uri": f"file://{tmp_path}/{{rerunToken}}"})
    two = one | {"rerunToken": "two", "source": {"uris": [text_files(tmp_path / "more", files=2)]}}
    assert not commit(team, bed, "dated", one)
    assert team.reach("dated", "Succeeded")["output"]["uri"] == f"{tmp_path}/one"
    assert not commit(team, bed, "dated", two)
    status = team.wait("dated", lambda status: status["run"]["number"] == 2 and status["phase"] == "Succeeded")
    assert (status["output"]["uri"], status["reason"]) == (f"{tmp_path}/two", "Committed")
    assert team.count_attempts("dated") == 2
    assert not commit(team, bed, "dated", one)
    status = team.wait("dated", lambda status: status["run"]["number"] == 3 and status["phase"] == "Succeeded")
    assert (status["output"]["uri"], status["reason"]) == (f"{tmp_path}/one", "AlreadyComplete")
    assert team.count_attempts("dated") == 2


def test_a_job_with_the_longest_name_is_planned_run_and_run_again(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    name = "job-with-a-name-of-thirty-six-letters"[:36]
    spec = local_spec(tmp_path, rerunToken="1")
    assert not commit(team, bed, name, spec)
    team.reach(name, "Succeeded", "Committed")
    assert not commit(team, bed, name, spec | {"rerunToken": "2"})
    status = team.wait(name, lambda status: status["run"]["number"] == 2 and status["phase"] == "Succeeded")
    assert status["run"]["checkpoint"] == f"{name}-r2"


def test_removing_the_token_begins_nothing(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    spec = local_spec(tmp_path)
    assert not commit(team, bed, "plain", spec | {"rerunToken": "1"})
    team.reach("plain", "Succeeded")
    assert not commit(team, bed, "plain", spec)
    status = team.wait("plain", lambda status: status["observedGeneration"] == 2)
    assert (status["phase"], status["run"]["number"], team.count_attempts("plain")) == ("Succeeded", 1, 1)


def test_a_raised_limit_resumes_a_failed_run(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    bad_lines(tmp_path / "src" / "bad.jsonl", good=BEHIND_THE_SAMPLE)
    spec = local_spec(tmp_path, maxQuarantined=3)
    assert not commit(team, bed, "strict", spec)
    team.reach("strict", "Failed", "QuarantineExceeded")
    assert not commit(team, bed, "strict", spec | {"maxQuarantined": 9})
    status = team.reach("strict", "Succeeded", "Committed")
    assert (status["run"]["number"], status["attempt"]["number"], team.count_attempts("strict")) == (1, 2, 2)
    assert status["progress"]["quarantined"] == 9


def test_a_raised_limit_lets_a_refused_plan_go_on(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    bad_lines(tmp_path / "src" / "bad.jsonl")
    spec = local_spec(tmp_path, maxQuarantined=3)
    assert not commit(team, bed, "refused", spec)
    team.reach("refused", "Failed", "QuarantineExceeded")
    assert team.count_attempts("refused") == 0
    assert not commit(team, bed, "refused", spec | {"maxQuarantined": 9})
    status = team.reach("refused", "Succeeded", "Committed")
    assert (status["run"]["number"], status["attempt"]["number"], team.count_attempts("refused")) == (1, 1, 1)
    assert status["progress"]["quarantined"] == 9


def test_a_corrected_image_is_pulled_and_nothing_is_counted(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    spec = local_spec(tmp_path, image="testbed/worker:plan-run.worker-missing")
    assert not commit(team, bed, "image", spec)
    team.reach("image", "Starting", "ImagePullFailed")
    assert not commit(team, bed, "image", spec | {"image": "testbed/worker:plan-run.driver-run"})
    status = team.reach("image", "Succeeded", "Committed")
    assert (status["run"]["number"], status["attempt"]["number"], team.count_attempts("image")) == (1, 2, 2)
    assert "lastFailures" not in status
