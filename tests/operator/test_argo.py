"""Jobs that live in a git repository, with Argo CD's engine: commits, refusals, drift."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.cluster.jobs import Jobs, job_manifest, local_spec, text_files, wait_for
from testbed.argo import run_agent
from testbed.cluster import Testbed
from testbed.git import WorkingCopy
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

_numbers = count(1)


class Place(NamedTuple):
    """A repository whose job the engine keeps as it is there; `log`: of the engine."""

    name: str
    namespace: str
    repository: WorkingCopy
    log: Path

    def commit(self, words: str, spec: dict[str, Any]) -> None:
        """The job as it is to be."""
        self.repository.commit({"job.yaml": job_manifest(self.name, spec, namespace=self.namespace)}, words)


@pytest.fixture
def place(bed: Testbed, team: Jobs, tmp_path: Path) -> Iterator[Place]:
    repository = WorkingCopy(tmp_path / "repository")
    repository.commit({}, "Begin")
    with run_agent(bed, repository.folder, team.namespace) as log:
        yield Place(f"argo-{next(_numbers)}", team.namespace, repository, log)


def succeed(team: Jobs, name: str, run: int) -> dict[str, Any]:
    wait_for(lambda: name in team.names(Kind.JOB), bool)
    return team.wait(name, lambda status: status.get("phase") == "Succeeded" and status["run"]["number"] == run)


def test_commits_make_runs(place: Place, team: Jobs, tmp_path: Path) -> None:
    one = local_spec(tmp_path, rerunToken="one", output={"uri": f"file://{tmp_path}/{{rerunToken}}"})
    place.commit("Tokenize the corpus", one)
    succeed(team, place.name, 1)
    two = one | {"rerunToken": "two", "source": {"uris": [text_files(tmp_path / "more", files=2)]}}
    place.commit("Tokenize more", two)
    status = succeed(team, place.name, 2)
    assert status["output"]["uri"] == f"{tmp_path}/two"
    assert team.count_attempts(place.name) == 2, "one commit, one run"


def test_the_engine_reports_a_refused_edit_and_reverts_drift(place: Place, team: Jobs, tmp_path: Path) -> None:
    spec = local_spec(tmp_path, workers={"replicas": 2})
    place.commit("Tokenize the corpus", spec)
    succeed(team, place.name, 1)
    team.edit(place.name, {"workers": {"replicas": 3}})
    wait_for(lambda: team.get(place.name)["spec"]["workers"]["replicas"], lambda replicas: replicas == 2)
    place.commit("Use another tokenizer", spec | {"tokenizer": {"name": "cl100k_base"}})
    wait_for(lambda: place.log.read_text(encoding="utf-8"), lambda said: "rerunToken" in said)
    status = team.wait(place.name, lambda status: status["observedGeneration"] == 3)
    assert (status["run"]["number"], status["phase"], team.count_attempts(place.name)) == (1, "Succeeded", 1)
