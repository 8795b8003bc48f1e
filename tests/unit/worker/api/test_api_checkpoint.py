"""The checkpoint carries a run to its Pods without changing what the run is."""

from __future__ import annotations

import pytest

from support.manifests.api_manifests import MINIMAL, Manifest, with_spec
from tokenization_worker.api.checkpoint import TokenizationCheckpoint, make_attempt_spec, make_run_spec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import attempt_digest, run_key
from tokenization_worker.api.manifest.load import validate_manifest
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.api.resolve import resolve_data, resolve_limits

JOB = with_spec(
    {
        "source": {"format": "Text", "documentSeparator": "x"},
        "output": {"uri": "gs://o/{rerunToken}", "splits": [{"name": "test", "share": "0.5%"}, {"name": "train"}]},
        "rerunToken": "2",
        "maxQuarantined": 7,
        "rangeBytes": "64Mi",
    }
)


def checkpoint_of(manifest: Manifest) -> Manifest:
    job = TokenizationJob.from_object(manifest)
    return {
        "apiVersion": API_VERSION,
        "kind": "TokenizationCheckpoint",
        "metadata": {"name": "fineweb-edu-r1", "namespace": "team-a", "uid": "2"},
        "spec": {
            "run": make_run_spec(job, number=1, job_uid="1").to_manifest(),
            "attempt": make_attempt_spec(job, number=2, image="i", slots=8).to_manifest(),
            "writerPodPrefix": "fineweb-edu-r1-a2-head",
        },
    }


@pytest.mark.parametrize("manifest", [MINIMAL, JOB], ids=["smallest", "larger"])
def test_pods_execute_the_run_that_the_job_asked_for(manifest: Manifest) -> None:
    job = TokenizationJob.from_object(manifest)
    checkpoint = validate_manifest(TokenizationCheckpoint, checkpoint_of(manifest), origin="the checkpoint")
    again = checkpoint.to_job()
    assert resolve_data(again) == resolve_data(job)
    assert resolve_limits(again) == resolve_limits(job)
    assert run_key(again) == run_key(job) == checkpoint.spec.run.run_key
    assert (again.metadata.name, again.metadata.namespace, again.metadata.uid) == ("fineweb-edu", "team-a", "1")


def test_what_a_job_asserts_may_change_with_each_attempt_of_a_run() -> None:
    fingerprint = "ab" * 32
    asserting = with_spec({"tokenizer": {"fingerprint": fingerprint}})
    made, plain = checkpoint_of(asserting), checkpoint_of(MINIMAL)
    assert made["spec"]["run"] == plain["spec"]["run"], "a checkpoint's run never changes"
    again = validate_manifest(TokenizationCheckpoint, made, origin="the checkpoint").to_job()
    assert again.spec.tokenizer.fingerprint == fingerprint
    assert attempt_digest(again) != attempt_digest(TokenizationJob.from_object(MINIMAL)), "a failed job goes on"


def test_the_longest_name_of_a_job_leaves_room_for_the_number_of_a_run() -> None:
    longest = "a" * 36
    job = MINIMAL | {"metadata": {"name": longest}}
    manifest = checkpoint_of(job) | {"metadata": {"name": f"{longest}-r99999", "namespace": "team-a"}}
    checkpoint = validate_manifest(TokenizationCheckpoint, manifest, origin="the checkpoint")
    assert checkpoint.to_job().metadata.name == longest


def test_plan_pod_runs_before_any_attempt() -> None:
    manifest = checkpoint_of(MINIMAL)
    del manifest["spec"]["attempt"]
    job = validate_manifest(TokenizationCheckpoint, manifest, origin="the checkpoint").to_job()
    written_out = TokenizationJob.from_object(with_spec({"tokenizer": {"delimiter": {"position": "Before"}}}))
    assert job == job.model_copy(update={"spec": written_out.spec})


def test_reports_of_a_newer_worker_are_read() -> None:
    manifest = checkpoint_of(MINIMAL) | {
        "status": {
            "plan": {"files": 3, "dataKey": "d", "newer": 1},
            "progress": {"percent": 42, "completedRanges": [{"start": 0, "end": 4}]},
            "committed": {"jobUid": "1", "run": 1, "runKey": "k", "indexUri": "gs://o/index.json", "indexDigest": "d"},
        }
    }
    status = validate_manifest(TokenizationCheckpoint, manifest, origin="the checkpoint").status
    assert status is not None
    assert status.plan is not None
    assert status.plan.files == 3
    assert status.committed is not None
    assert status.committed.run_key == "k"
