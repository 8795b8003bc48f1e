"""The whole story on a real control plane with the real KubeRay: planned, run and committed by real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.cluster.jobs import Jobs, local_spec
from support.cluster.operators import Release
from support.forked_commands import TOKJOB
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.core]


def test_a_job_is_planned_run_and_committed(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    with release.operator():
        jobs.apply("demo", local_spec(tmp_path))
        status = jobs.wait("demo", lambda status: status.get("phase") in ("Succeeded", "Failed"))
    assert (status["phase"], status["reason"]) == ("Succeeded", "Committed"), status
    verified = subprocess.run([str(TOKJOB), "verify", str(tmp_path / "out")], check=False)
    assert verified.returncode == 0
    assert jobs.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    reasons = [reason for _, reason, _ in jobs.events("demo")]
    assert reasons[:3] == ["Planning", "Planned", "ClusterRequested"]
    assert reasons[-1] == "Committed"
