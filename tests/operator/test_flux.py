"""Jobs that live in a git repository, with Flux' own controller: commits, refusals, drift, health."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.jobs import Jobs, job_manifest, local_spec, text_files, wait_for
from support.cluster.operators import IMAGE, render
from support.places import CHECKOUT
from testbed.cluster import Testbed
from testbed.flux import SHARD, Flux, Repository, run_flux

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

EXAMPLE = CHECKOUT / "examples" / "gitops" / "flux-kustomization.yaml"
HOLD = "testbed/worker:plan-run.driver-hold"


class Place:
    """A Kustomization of the example's, for a repository of its own with one job."""

    def __init__(self, bed: Testbed, flux: Flux, team: Jobs, name: str, *, waits: bool = True) -> None:
        self._bed, self._team, self._name = bed, team, name
        self.repository: Repository = flux.repository(team.namespace, name)
        self._path = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{team.namespace}/kustomizations/{name}"
        example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        example["metadata"] = {"name": name, "namespace": team.namespace, "labels": {SHARD: flux.key}}
        example["spec"] |= {
            "interval": "1h",
            "retryInterval": "3s",
            "timeout": "10m",
            "wait": waits,
            "sourceRef": {"kind": "GitRepository", "name": name},
        }
        bed.apply(example)

    def commit(self, words: str, spec: dict[str, Any]) -> str:
        """The revision of a commit with this job in it."""
        manifest = job_manifest(self._name, spec, namespace=self._team.namespace)
        return self.repository.commit({"jobs/job.yaml": manifest}, words)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._bed.call("GET", self._path).get("status") or {}
        return found

    def ready(self) -> tuple[str, str, str]:
        """Status, reason and message of the condition Ready."""
        for each in self.status().get("conditions") or ():
            if each["type"] == "Ready":
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def wait(self, holds: Callable[[tuple[str, str, str]], bool]) -> tuple[str, str, str]:
        return wait_for(self.ready, holds)

    def be_ready(self, revision: str) -> None:
        """Wait until Flux calls that revision healthy."""
        self.wait(lambda ready: ready[0] == "True" and revision in ready[2])

    def leave(self) -> None:
        """From now on the controller does nothing about it."""
        self._bed.merge(self._path, {"spec": {"suspend": True}})

    def look_now(self) -> None:
        """As after the interval, which would be long."""
        asked = {"reconcile.fluxcd.io/requestedAt": self._team.get(self._name)["metadata"]["resourceVersion"]}
        self._bed.merge(self._path, {"metadata": {"annotations": asked}})


Settle = Callable[[str], Place]


@pytest.fixture(scope="module")
def flux(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    with run_flux(bed, tmp_path_factory.mktemp("flux")) as flux:
        yield flux


@pytest.fixture
def settle(bed: Testbed, flux: Flux, team: Jobs) -> Iterator[Settle]:
    """Makes the Kustomization of that name; after the test it is left alone."""
    with ExitStack() as places:

        def settle(name: str) -> Place:
            place = Place(bed, flux, team, name)
            places.callback(place.leave)
            return place

        yield settle


def test_commits_make_runs_and_flux_tells_how_they_are(settle: Settle, team: Jobs, tmp_path: Path) -> None:
    place = settle("commits")
    one = local_spec(tmp_path, rerunToken="one", output={"uri": f"file://{tmp_path}/{{rerunToken}}"})
    place.commit("Tokenize the corpus", one | {"image": HOLD})
    team.wait_for_driver("commits")
    state, reason, message = place.ready()
    assert (state, reason) == ("Unknown", "Progressing"), message
    place.commit("Stop it", one | {"image": IMAGE, "suspend": True})
    team.reach("commits", "Suspended")
    place.be_ready(place.commit("Let it go on", one | {"image": IMAGE}))
    assert team.status("commits")["phase"] == "Succeeded"
    first = team.count_attempts("commits")

    two = one | {"rerunToken": "two", "source": {"uris": [text_files(tmp_path / "more", files=2)]}}
    place.be_ready(place.commit("Tokenize more", two))
    status = team.status("commits")
    assert (status["run"]["number"], status["phase"], status["output"]["uri"]) == (2, "Succeeded", f"{tmp_path}/two")
    assert team.count_attempts("commits") == first + 1, "one commit, one run"


def test_flux_reports_an_edit_of_data_without_a_token_in_its_own_status(
    settle: Settle, team: Jobs, tmp_path: Path
) -> None:
    place = settle("edited")
    spec = local_spec(tmp_path)
    place.be_ready(place.commit("Tokenize the corpus", spec))
    place.commit("Use another tokenizer", spec | {"tokenizer": {"name": "cl100k_base"}})
    place.wait(lambda ready: ready[0] == "False" and "rerunToken" in ready[2])
    status = team.status("edited")
    assert (status["run"]["number"], status["phase"], team.count_attempts("edited")) == (1, "Succeeded", 1)


def test_drift_is_put_back_without_a_new_run(settle: Settle, team: Jobs, tmp_path: Path) -> None:
    place = settle("drift")
    place.be_ready(place.commit("Tokenize the corpus", local_spec(tmp_path, workers={"replicas": 2})))
    team.edit("drift", {"workers": {"replicas": 3}})
    place.look_now()
    wait_for(lambda: team.get("drift")["spec"]["workers"]["replicas"], lambda replicas: replicas == 2)
    status = team.wait("drift", lambda status: status["observedGeneration"] == 3)
    assert (status["run"]["number"], status["phase"], team.count_attempts("drift")) == (1, "Succeeded", 1)


def test_a_failed_job_makes_its_kustomization_fail(settle: Settle, team: Jobs, tmp_path: Path) -> None:
    place = settle("broken")
    spec = local_spec(tmp_path)
    place.commit("Tokenize a field that is not there", spec | {"source": {**spec["source"], "textField": "body"}})
    _, _, message = place.wait(lambda ready: ready[:2] == ("False", "HealthCheckFailed"))
    assert re.search("TokenizationJob/.*/broken", message)
    place.be_ready(place.commit("Tokenize the one that is", spec))


def test_flux_takes_the_chart_from_one_replica_to_two_and_back(bed: Testbed, flux: Flux, team: Jobs) -> None:
    """What `helm template` makes, applied server-side by Flux; no node here runs the operator's image."""
    place = Place(bed, flux, team, "scaled", waits=False)
    for replicas in (1, 2, 1):
        objects = render(team.namespace, f"operator.replicas={replicas}")
        [deployment] = [each for each in objects if each["kind"] == "Deployment"]
        place.be_ready(place.repository.commit({"jobs/operator.yaml": deployment}, f"{replicas} replicas"))
        name = deployment["metadata"]["name"]
        found = json.loads(bed.do("-n", team.namespace, "get", "deployment", name, "-o", "json"))["spec"]
        assert (found["replicas"], found["strategy"]["type"]) == (replicas, "RollingUpdate")
    place.leave()
