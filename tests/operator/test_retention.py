"""What KubeRay leaves of a committed run goes in its time, on a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import Release
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.testbed


def test_the_ray_job_of_a_committed_run_goes_with_all_that_kuberay_has_left(
    release: Release, jobs: Jobs, tmp_path: Path
) -> None:
    with release.operator(TOKENIZATION_RAY_JOB_RETENTION_SECONDS="1"):
        jobs.apply("kept", local_spec(tmp_path))
        committed = jobs.reach("kept", "Succeeded", "Committed")
        wait_for(lambda: jobs.names(Kind.RAY_JOB), lambda names: names == [])
        wait_for(lambda: [name for name in jobs.names(Kind.POD) if "-r1-a1" in name], lambda names: names == [])
        assert jobs.names(Kind.CHECKPOINT) == ["kept-r1"]
        assert jobs.status("kept") == committed
        jobs.edit("kept", {"rerunToken": "again"})
        jobs.wait("kept", lambda status: status.get("phase") == "Succeeded" and status["run"]["number"] == 2)
    assert not release.errors()
