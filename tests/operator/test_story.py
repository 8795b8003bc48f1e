"""The whole story on a real control plane with the real KubeRay: planned, run and committed by real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes import client
from operators import Jobs, operator

from testbed.cluster import Testbed

pytestmark = pytest.mark.testbed

IMAGE = "testbed/worker:plan-run.driver-run"


def test_a_job_is_planned_run_and_committed(
    bed: Testbed, api: client.ApiClient, namespace: str, log: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    for number in range(4):
        lines = "".join(f'{{"text": "file {number}, line {line}: some text"}}\n' for line in range(500))
        (source / f"{number}.jsonl").write_text(lines, encoding="utf-8")
    jobs = Jobs(api, namespace)
    with operator(bed.kubeconfig, namespace, log, image=IMAGE):
        jobs.apply(
            "demo",
            {
                "source": {"uris": [f"file://{source}"]},
                "tokenizer": {"name": "gpt2"},
                "output": {"uri": f"file://{output}"},
            },
        )
        jobs.wait("demo", lambda status: status.get("phase") == "Starting")
        status = jobs.wait("demo", lambda status: status.get("phase") in ("Succeeded", "Failed"))
    assert (status["phase"], status["reason"]) == ("Succeeded", "Committed"), status
    assert (output / "index.json").exists()
