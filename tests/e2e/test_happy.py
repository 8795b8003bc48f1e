"""A job from `kubectl apply` to a dataset that is verified."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e.images import ROOT
from e2e.node import RealCluster
from e2e.release import Release
from e2e.runs import NAME, RUN_S, Team, fit, start_of
from e2e.steps import note, step

pytestmark = [pytest.mark.e2e, pytest.mark.core]

EXAMPLE = ROOT / "examples" / "gitops-rerun.yaml"
OUTPUT = "tokens/corpus-2026-11"


def test_the_release_passes_its_own_test(release: Release) -> None:
    release.test()


def test_an_example_is_applied_and_two_workers_write_what_a_local_run_writes(
    cluster: RealCluster, team: Team, expected: Path
) -> None:
    manifest = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8").replace("your-bucket", team.bucket))
    manifest["spec"] = fit(manifest["spec"])
    cluster.do("-n", team.jobs.namespace, "apply", "-f", "-", text=json.dumps(manifest))
    with watched(cluster, team) as seen:
        for phase in ("Starting", "Running"):
            with step(f"reach {phase}"):
                team.jobs.reach(NAME, phase, deadline_s=RUN_S)
        workers = team.pods(NAME, "worker")
        with step("reach Succeeded"):
            status = team.succeed(NAME, "Committed")
    assert status["progress"]["rangesCompleted"] == status["progress"]["rangesTotal"]
    with step("verify the dataset, and compare it with the local one"):
        team.prove(expected, OUTPUT)
    first = team.first_ranges(OUTPUT)
    assert len(first) == len(workers) == 2
    took = max(first.values()) - max(map(start_of, workers))
    note(f"{took.total_seconds():.0f} s from the start of the cluster until both workers had done a range")
    for line in seen.read_text(encoding="utf-8").splitlines():
        note(line)


@contextmanager
def watched(cluster: RealCluster, team: Team) -> Iterator[Path]:
    """A file with what a user sees who watches the namespace."""
    seen = cluster.folder / f"watch-{team.jobs.namespace}"
    command = [str(cluster.commands / "kubectl"), "-n", team.jobs.namespace, "get", "tkj", "--watch"]
    with seen.open("w", encoding="utf-8") as lines, subprocess.Popen(command, stdout=lines) as process:
        try:
            yield seen
        finally:
            process.terminate()
