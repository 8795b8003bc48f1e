"""Every failure tells its user what happened and what to do, and the operator need not look at all jobs for that.

By real faults where one machine can have them; what a kubelet would see is written as a kubelet writes it (the tag of
an image says what becomes of its Pods).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.jobs import BEHIND_THE_SAMPLE, Jobs, bad_lines, local_spec, text_files, wait_for
from support.cluster.operators import NEVER_AGAIN, RARELY, Release, operator_pod
from support.stores.gcs_emulator import make_bucket, serve_emulator
from support.stores.gcs_fake import Fault, serve_fake_gcs
from testbed.cluster import Testbed
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.testbed

OPERATOR_OPTIONS = RARELY | NEVER_AGAIN


def image(fates: str) -> str:
    return f"testbed/worker:{fates}"


def emulator_at(url: str) -> list[dict[str, str]]:
    return [{"name": "STORAGE_EMULATOR_HOST", "value": url}]


def gcs_spec(url: str, source: str = "gs://bucket/corpus/", **more: Any) -> dict[str, Any]:
    return {
        "source": {"uris": [source]},
        "tokenizer": {"name": "gpt2"},
        "output": {"uri": "gs://bucket/out"},
        "env": emulator_at(url),
        **more,
    }


def planned(team: Jobs, name: str, spec: dict[str, Any]) -> None:
    """Plan a job, and hold it there."""
    team.apply(name, spec | {"suspend": True})
    team.reach(name, "Suspended")


def refused(team: Jobs, name: str, reason: str, *words: str, phase: str = "Failed") -> dict[str, Any]:
    """The status of a job that tells that reason with these words, and so do its condition and its last event."""
    status = team.wait(
        name,
        lambda status: (
            (status.get("phase"), status.get("reason")) == (phase, reason)
            and all(word in status["message"] for word in words)
        ),
    )
    conditions = {each["type"]: each for each in status["conditions"]}
    assert ("Failed" in conditions) == (phase == "Failed")
    if phase == "Failed":
        assert conditions["Failed"]["status"] == conditions["Stalled"]["status"] == "True"
        assert conditions["Failed"]["message"] == status["message"]
    assert wait_for(lambda: [each for each in team.events(name) if each[1] == reason], bool)
    return status


def test_a_missing_image_of_the_plan(team: Jobs, tmp_path: Path) -> None:
    team.apply("typo", local_spec(tmp_path, image=image("plan-missing")))
    refused(team, "typo", "ImagePullFailed", image("plan-missing"), "not found", "Pod typo-r1-p1-", phase="Planning")


def test_a_missing_image_of_the_workers(team: Jobs, tmp_path: Path) -> None:
    team.apply("worker-typo", local_spec(tmp_path, image=image("plan-run.worker-missing")))
    refused(team, "worker-typo", "ImagePullFailed", "plan-run.worker-missing", "not found", phase="Starting")


def test_workers_for_whom_there_is_no_node(team: Jobs, tmp_path: Path) -> None:
    tpu = {"accelerator": "tpu-v5p-slice", "topology": "2x2x1", "chipsPerHost": 4}
    team.apply("homeless", local_spec(tmp_path, workers={"tpu": tpu}))
    words = ("finds no node", "didn't match Pod's node affinity/selector", "waits until")
    refused(team, "homeless", "Unschedulable", *words, phase="Starting")


def test_a_plan_for_which_there_is_no_quota(release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": jobs.namespace}}
    bed.apply(quota | {"spec": {"hard": {"pods": "0"}}})
    with release.operator(**RARELY):
        jobs.apply("poor", local_spec(tmp_path))
        refused(jobs, "poor", "Unschedulable", "exceeded quota: none", "The plan may take until", phase="Planning")


def test_a_namespace_without_the_service_account(release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    gone = bed.kubectl("-n", jobs.namespace, "delete", "serviceaccount", "tokenization-worker")
    assert not gone.returncode, gone.stderr
    with release.operator(**RARELY):
        jobs.apply("lost", local_spec(tmp_path))
        command = f"tokjob namespace-manifest {jobs.namespace} | kubectl apply -f -"
        refused(jobs, "lost", "NamespaceNotPrepared", "'tokenization-worker'", command, phase="Planning")


def test_a_namespace_without_the_role_binding(release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    gone = bed.kubectl("-n", jobs.namespace, "delete", "rolebinding", "tokenization-worker")
    assert not gone.returncode, gone.stderr
    with release.operator(**OPERATOR_OPTIONS):
        jobs.apply("mute", local_spec(tmp_path))
        words = ("403", "tokjob namespace-manifest prints the binding")
        refused(jobs, "mute", "NamespaceNotPrepared", *words, phase="Retrying")


@pytest.mark.parametrize(
    ("reason", "permission", "method", "path"),
    [
        ("OutputNotWritable", "storage.objects.create", "POST", ""),
        ("SourceNotReadable", "storage.objects.list", "GET", "prefix=corpus"),
    ],
)
def test_a_bucket_that_does_not_let_the_job_in(
    reason: str, permission: str, method: str, path: str, team: Jobs
) -> None:
    name = reason.lower()
    with serve_fake_gcs() as gcs:
        gcs.put("corpus/0.jsonl", b'{"text": "some text"}\n')
        gcs.faults += [Fault(method, path, 403, f"robot@project.iam does not have {permission} access")] * 1000
        team.apply(name, gcs_spec(gcs.url))
        command = "gcloud storage buckets add-iam-policy-binding gs://bucket"
        refused(team, name, reason, permission, "robot@project.iam", command)


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with serve_emulator() as url:
        yield url


def test_a_bucket_that_does_not_exist(team: Jobs, emulator: str) -> None:
    output = {"uri": f"gs://{make_bucket(emulator)}/out"}  # or that of the output is missed first
    team.apply("no-bucket", gcs_spec(emulator, "gs://no-such-bucket/corpus/", output=output))
    refused(
        team,
        "no-bucket",
        "SourceNotReadable",
        "bucket 'no-such-bucket' does not exist",
        "gcloud storage buckets create",
    )


def sparse_source(folder: Path, size: int) -> str:
    """A file that is so large, and takes hardly any room: behind its first lines is nothing."""
    path = folder / "sparse" / "large.jsonl"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b'{"text": "some text that is sampled"}\n' * 20_000)
        file.truncate(size)
    return f"file://{path.parent}"


SHUFFLE = {"dtype": "UInt32", "shuffle": {"seed": 0}}


def test_a_shuffle_of_more_than_one_can_take(team: Jobs, emulator: str, tmp_path: Path) -> None:
    output = {"uri": f"gs://{make_bucket(emulator)}/out", **SHUFFLE}
    source = sparse_source(tmp_path, 3 * 10**12)
    team.apply("too-large", gcs_spec(emulator, source, output=output, tokenizer={"name": "bytes"}))
    refused(team, "too-large", "ShuffleTooLarge", "one shuffle takes 4.4 TB", "split the source into several jobs")
    assert team.count_attempts("too-large") == 0


def test_a_shuffle_that_does_not_fit_the_disk(team: Jobs, tmp_path: Path) -> None:
    source, output = sparse_source(tmp_path, 3 * 10**12), {"uri": f"file://{tmp_path / 'out'}", **SHUFFLE}
    spec = {"source": {"uris": [source]}, "tokenizer": {"name": "gpt2"}, "output": output}
    team.apply("too-full", spec)
    refused(team, "too-full", "OutputFull", "for a while", "are free", phase="Retrying")
    assert team.count_attempts("too-full") == 0
    team.delete("too-full")


def test_a_shuffle_whose_windows_fit_no_worker(team: Jobs, emulator: str, tmp_path: Path) -> None:
    output = {"uri": f"gs://{make_bucket(emulator)}/out", **SHUFFLE}
    source = sparse_source(tmp_path, 3 * 10**11)
    workers = {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}
    spec = gcs_spec(emulator, source, output=output, tokenizer={"name": "bytes"}, workers=workers)
    team.apply("narrow", spec | {"image": image("plan-run.driver-hold")})
    words = ("a task of this shuffle needs 1", "a worker has 824 MiB", "raise the memory in workers.resources")
    refused(team, "narrow", "WorkerMemory", *words, phase="Pending")
    assert team.names(Kind.RAY_JOB) == []
    team.edit("narrow", {"workers": {"resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "3Gi"}}}})
    wait_for(lambda: team.names(Kind.RAY_JOB), lambda names: names == ["narrow-r1-a1"])
    team.delete("narrow")


def test_a_field_that_the_records_do_not_have(team: Jobs, tmp_path: Path) -> None:
    spec = local_spec(tmp_path)
    spec["source"]["textField"] = "body"
    team.apply("wrong-field", spec)
    refused(team, "wrong-field", "SourceInvalid", "0.jsonl", "'body'", "text")


def test_files_that_are_not_there(team: Jobs, tmp_path: Path) -> None:
    spec = local_spec(tmp_path) | {"source": {"uris": [f"file://{tmp_path}/nothing/*.jsonl"]}}
    team.apply("no-files", spec)
    refused(team, "no-files", "SourceInvalid", f"{tmp_path}/nothing/*.jsonl' matches no file")


def test_an_unknown_tokenizer_fails_the_job(team: Jobs, tmp_path: Path) -> None:
    team.apply("no-tokenizer", local_spec(tmp_path, tokenizer={"name": "cl100k_bas"}))
    refused(team, "no-tokenizer", "TokenizerUnavailable", "cl100k_bas", "cl100k_base")


def test_some_of_the_workers_are_there(team: Jobs, tmp_path: Path) -> None:
    tpu = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8}
    team.apply("few", local_spec(tmp_path, workers={"replicas": 3, "tpu": tpu}))
    words = ("2/3 workers are ready", "waits until", "workers.minReplicas would let it begin with fewer")
    status = refused(team, "few", "WaitingForWorkers", *words, phase="Starting")
    assert status["workers"] == {"desired": 3, "ready": 2}
    team.delete("few")


def test_a_queue_that_holds_the_job(team: Jobs, tmp_path: Path) -> None:
    """As Kueue does it: it owns `suspend` of the RayJobs that have a queue."""
    team.apply("queued", local_spec(tmp_path), labels={"kueue.x-k8s.io/queue-name": "tpus"})
    wait_for(lambda: "queued-r1-a1" in team.names(Kind.RAY_JOB), bool)
    assert team.get("queued-r1-a1", Kind.RAY_JOB)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "tpus"
    team.patch(Kind.RAY_JOB, "queued-r1-a1", {"spec": {"suspend": True}})
    refused(team, "queued", "Queued", "LocalQueue 'tpus'", phase="Queued")
    team.patch(Kind.RAY_JOB, "queued-r1-a1", {"spec": {"suspend": False}})
    team.reach("queued", "Succeeded")


def deny(bed: Testbed, jobs: Jobs, resource: tuple[str, str], message: str) -> str:
    """A policy that denies new objects of an API group and kind in the namespace; the name of it and of its binding."""
    group, plural = resource
    name = f"no-{plural}-{jobs.namespace}"
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
    spaces = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": jobs.namespace}}}
    bed.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": message}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": spaces},
        },
    )
    return name


def test_a_cluster_that_does_not_take_ray_jobs(release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    name = deny(bed, jobs, ("ray.io", "rayjobs"), "no clusters before Christmas")
    with release.operator(**RARELY):
        jobs.apply("denied", local_spec(tmp_path))
        refused(jobs, "denied", "ClusterRejected", "no clusters before Christmas", phase="Starting")
        bed.kubectl("delete", "validatingadmissionpolicybinding", name)
        jobs.reach("denied", "Succeeded")
    assert [reason for _, reason, _ in jobs.events("denied")].count("ClusterRejected") == 1


def test_a_policy_that_denies_pods_is_named(release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path) -> None:
    name = deny(bed, jobs, ("", "pods"), "no Pods before Christmas")
    pod = yaml.safe_dump(operator_pod(jobs.namespace))
    create = ("create", "--dry-run=server", "-f", "-")
    wait_for(lambda: bed.kubectl(*create, text=pod).stderr, lambda said: "no Pods before Christmas" in said)
    with release.operator(**RARELY):
        jobs.apply("podless", local_spec(tmp_path))
        words = (f"ValidatingAdmissionPolicy '{name}' with binding '{name}'", "no Pods before Christmas")
        refused(jobs, "podless", "ClusterRejected", *words, phase="Planning")
    bed.kubectl("delete", "validatingadmissionpolicybinding", name)


def test_a_worker_that_takes_too_much_memory(team: Jobs, tmp_path: Path) -> None:
    workers = {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}
    team.apply("greedy", local_spec(tmp_path, workers=workers, image=image("plan-run.worker-oom")))
    words = ("killed for its memory: its limit is 1Gi", "workers.resources.limits.memory", "1536Mi")
    refused(team, "greedy", "WorkerMemory", *words, phase="Starting")


def test_a_file_that_has_changed(team: Jobs, tmp_path: Path) -> None:
    planned(team, "changed", local_spec(tmp_path))
    path = tmp_path / "src" / "2.jsonl"
    path.write_text(path.read_text("utf-8") + '{"text": "one more"}\n', encoding="utf-8")
    team.edit("changed", {"suspend": False})
    refused(team, "changed", "SourceChanged", "2.jsonl")


def test_more_unusable_documents_than_allowed_in_what_the_plan_reads(team: Jobs, tmp_path: Path) -> None:
    text_files(tmp_path / "src")
    bad_lines(tmp_path / "src" / "bad.jsonl")
    team.apply("dirty", local_spec(tmp_path, maxQuarantined=3))
    refused(team, "dirty", "QuarantineExceeded", "9 of 2,010 documents", "bad.jsonl record 2", "raise maxQuarantined")
    assert team.count_attempts("dirty") == 0


@pytest.mark.core
def test_more_unusable_documents_than_allowed_behind_what_the_plan_reads(team: Jobs, tmp_path: Path) -> None:
    text_files(tmp_path / "src")
    bad_lines(tmp_path / "src" / "bad.jsonl", good=BEHIND_THE_SAMPLE)
    team.apply("dirty-later", local_spec(tmp_path, maxQuarantined=3))
    refused(team, "dirty-later", "QuarantineExceeded", "9 of 4,009 documents", "record 2,001", "--quarantined")
    assert team.count_attempts("dirty-later") == 1


def test_an_output_that_holds_another_dataset(team: Jobs, tmp_path: Path) -> None:
    team.apply("first", local_spec(tmp_path))
    team.reach("first", "Succeeded")
    team.apply("second", local_spec(tmp_path, tokenizer={"name": "cl100k_base"}))
    refused(
        team,
        "second",
        "OutputConflict",
        "tokenizer.name: the job says cl100k_base, the output has gpt2",
        "another output.uri",
    )


def test_a_driver_that_comes_no_further(team: Jobs, tmp_path: Path) -> None:
    team.apply("still", local_spec(tmp_path, stallTimeoutSeconds=3, image=image("plan-run.driver-hold")))
    refused(team, "still", "Stalled", "no new range for 3 s", "none since the driver began at", phase="Retrying")


def test_a_lost_head(team: Jobs, bed: Testbed, tmp_path: Path) -> None:
    team.apply("headless", local_spec(tmp_path, image=image("plan-run.driver-hold")))
    team.wait_for_driver("headless")
    team.wait("headless", lambda status: bool(status["attempt"].get("headPod")))  # with which it has begun
    [head] = [
        pod["metadata"]["name"]
        for pod in team.all(Kind.POD)
        if pod["metadata"]["name"].startswith("headless-r1-a1")
        and pod["metadata"]["labels"].get("ray.io/node-type") == "head"
    ]
    bed.kubectl("-n", team.namespace, "delete", "pod", head)
    refused(team, "headless", "HeadLost", "Failure 1 of the 10", phase="Retrying")


def test_an_operator_that_was_away(release: Release, jobs: Jobs, tmp_path: Path) -> None:
    with release.operator(**RARELY):
        planned(jobs, "alone", local_spec(tmp_path))
        jobs.edit("alone", {"suspend": False})
        wait_for(lambda: jobs.names(Kind.RAY_JOB), bool)
        jobs.wait("alone", lambda status: bool((status.get("attempt") or {}).get("rayClusterName")))
    before = jobs.status("alone")
    wait_for(lambda: (jobs.get("alone-r1", Kind.CHECKPOINT).get("status") or {}).get("committed"), bool)
    assert jobs.status("alone") == before, "no operator runs that could say it"
    with release.operator(**RARELY):
        status = jobs.reach("alone", "Succeeded", "Committed")
    assert status["progress"]["percent"] == 100
    assert status["progress"]["lastCheckpointTime"]
