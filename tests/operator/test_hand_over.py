"""A finished job hands its dataset over to a training job: the example's script and manifests, on a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from support.cluster.jobs import Jobs, local_spec
from support.places import CHECKOUT
from testbed.cluster import Testbed
from tokenization_worker import open_dataset
from tokenization_worker.verification.verify import dataset_digest

EXAMPLE = CHECKOUT / "examples" / "hand-over"
NAME = "fineweb-edu"
HANDED_OVER = {"DATASET_URI", "DATASET_DIGEST", "DATASET_TOKENS", "TOKENIZER_FINGERPRINT"}

_TRAINER = {"image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"}
"""The fields of `spec.trainer` of a TrainJob, as Kubeflow Trainer 2.2 and 2.3 have them."""


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / name).read_text(encoding="utf-8"))
    return found


def program() -> tuple[list[str], dict[str, Any]]:
    """The command of the training container, on this machine, and its manifest."""
    job = manifest("train-job.yaml")
    [container] = job["spec"]["template"]["spec"]["containers"]
    return [sys.executable, *container["command"][1:]], job


def hand_over(bed: Testbed, namespace: str, name: str, *training: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "KUBECONFIG": str(bed.kubeconfig),
        "PATH": f"{bed.commands}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["sh", str(EXAMPLE / "hand_over.sh"), name, namespace, *training]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.testbed
def test_a_plain_job_trains_on_the_dataset_that_was_handed_over(
    team: Jobs, bed: Testbed, api: client.ApiClient, tmp_path: Path
) -> None:
    team.apply(NAME, local_spec(tmp_path))
    waiting = manifest("train-job.yaml")
    waiting["spec"]["suspend"] = True
    bed.do("-n", team.namespace, "apply", "-f", "-", text=yaml.safe_dump(waiting))
    done = hand_over(bed, team.namespace, NAME, "job/train-fineweb-edu")  # waits for the dataset
    assert not done.returncode, done.stderr
    batch = client.BatchV1Api(api)
    assert batch.read_namespaced_job("train-fineweb-edu", team.namespace).spec.suspend is False
    core = client.CoreV1Api(api)
    told = dict(core.read_namespaced_config_map(f"{NAME}-dataset", team.namespace).data)
    dataset = open_dataset(tmp_path / "out")
    assert told == {
        "DATASET_URI": str(tmp_path / "out"),
        "DATASET_DIGEST": dataset_digest(str(tmp_path / "out")),
        "DATASET_TOKENS": str(len(dataset["train"])),
        "TOKENIZER_FINGERPRINT": dataset.index["tokenizer"]["fingerprint"],
    }
    command, job = program()
    text = yaml.safe_dump(job)
    applied = bed.kubectl(
        *("-n", team.namespace, "apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-"),
        text=text,
    )
    assert not applied.returncode, applied.stderr
    trained = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=False)
    assert not trained.returncode, trained.stderr
    assert trained.stdout.endswith(f"steps on {told['DATASET_TOKENS']} tokens\n")
    other = told | {"DATASET_DIGEST": "0" * 64}
    refused = subprocess.run(command, env=os.environ | other, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "is not the dataset that was handed over" in refused.stderr


@pytest.mark.testbed
def test_nothing_is_handed_over_of_a_job_that_failed(
    team: Jobs, bed: Testbed, api: client.ApiClient, tmp_path: Path
) -> None:
    spec = local_spec(tmp_path)
    team.apply("without-text", spec | {"source": {**spec["source"], "textField": "body"}})
    done = hand_over(bed, team.namespace, "without-text")
    assert done.returncode == 1
    assert "SourceInvalid: " in done.stderr
    names = [each.metadata.name for each in client.CoreV1Api(api).list_namespaced_config_map(team.namespace).items]
    assert "without-text-dataset" not in names


def test_a_trainjob_names_what_is_handed_over_and_nothing_else() -> None:
    """Kubeflow's kind is not installed here."""
    job = manifest("kubeflow-trainjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["spec"].keys() == {"suspend", "runtimeRef", "trainer"}
    assert job["spec"]["suspend"] is True
    assert job["spec"]["trainer"].keys() <= _TRAINER
    env = {each["name"]: each["valueFrom"]["configMapKeyRef"] for each in job["spec"]["trainer"]["env"]}
    assert env == {name: {"name": f"{NAME}-dataset", "key": name} for name in HANDED_OVER}


def test_the_script_writes_what_the_manifests_read() -> None:
    text = (EXAMPLE / "hand_over.sh").read_text(encoding="utf-8")
    assert {name for name in HANDED_OVER if f"{name}={{.status.output." in text} == HANDED_OVER
    _, job = program()
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": f"{NAME}-dataset"}}]
