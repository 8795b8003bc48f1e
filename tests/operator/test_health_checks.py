"""What GitOps tools make of a job, by their own code: kstatus, Argo CD's Lua, and Flux' expressions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from support.cluster.story import Story, planned, running
from support.places import CHECKOUT
from testbed.cluster import Testbed
from testbed.programs import find_judges
from testbed.shared import CRDS

pytestmark = pytest.mark.testbed

EXAMPLES = CHECKOUT / "examples" / "gitops"


def new() -> dict[str, Any]:
    """With the status that the API server gives it."""
    crd = yaml.safe_load((CRDS / "tokenization.dev_tokenizationjobs.yaml").read_text("utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return Story().job | {"status": schema["properties"]["status"]["default"]}


def planning() -> dict[str, Any]:
    return Story().job


def queued() -> dict[str, Any]:
    story = planned()
    story.ray(jobDeploymentStatus="Suspended")
    return story.job


def starting() -> dict[str, Any]:
    return planned().job


def suspended() -> dict[str, Any]:
    return planned(suspend=True).job


def retrying() -> dict[str, Any]:
    story = running()
    story.driver_fails(5, "StorageFailed")
    return story.job


def failed() -> dict[str, Any]:
    story = running()
    story.driver_fails(4, "QuarantineExceeded")
    return story.job


def succeeded() -> dict[str, Any]:
    story = running()
    story.commit()
    return story.job


def edited() -> dict[str, Any]:
    """Succeeded, and changed since."""
    job = succeeded()
    return job | {"metadata": job["metadata"] | {"generation": job["metadata"]["generation"] + 1}}


PHASES: dict[str, tuple[Callable[[], dict[str, Any]], str, str, str]] = {
    "not looked at yet": (new, "InProgress", "Progressing", "InProgress"),
    "Planning": (planning, "InProgress", "Progressing", "InProgress"),
    "Queued": (queued, "InProgress", "Progressing", "InProgress"),
    "Starting": (starting, "InProgress", "Progressing", "InProgress"),
    "Running": (lambda: running().job, "InProgress", "Progressing", "InProgress"),
    "Retrying": (retrying, "InProgress", "Progressing", "InProgress"),
    "Suspended": (suspended, "InProgress", "Suspended", "InProgress"),
    "Succeeded": (succeeded, "Current", "Healthy", "Current"),
    "Failed": (failed, "Failed", "Degraded", "Failed"),
    "changed since": (edited, "InProgress", "Progressing", "InProgress"),
}


@pytest.fixture(scope="module")
def verdicts(bed: Testbed) -> dict[str, dict[str, str]]:
    """Of every phase; `bed`: where there is none, there are no judges."""
    kustomization = yaml.safe_load((EXAMPLES / "flux-kustomization.yaml").read_text("utf-8"))
    [checks] = kustomization["spec"]["healthCheckExprs"]
    expressions = {name: checks[name] for name in ("current", "inProgress", "failed")}
    command = [str(find_judges()), "-lua", str(EXAMPLES / "argocd-health.lua"), "-flux", json.dumps(expressions)]
    objects = json.dumps([make() for make, *_ in PHASES.values()])
    done = subprocess.run(command, input=objects, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return dict(zip(PHASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("phase", PHASES)
def test_tools_see_what_a_phase_means(phase: str, verdicts: dict[str, dict[str, str]]) -> None:
    _, kstatus, argo, flux = PHASES[phase]
    found = verdicts[phase]
    assert (found["kstatus"], found["argo"], found["flux"]) == (kstatus, argo, flux)


def test_argo_cd_shows_the_reason_and_what_to_do(verdicts: dict[str, dict[str, str]]) -> None:
    assert verdicts["Failed"]["argoMessage"] == "QuarantineExceeded: QuarantineExceeded happened. Next: mend"
