"""What a job may add to its Pods: which of them have it, and that Kubernetes admits them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import WORKERS
from support.cluster.story import Story
from support.manifests.api_manifests import Manifest, with_spec
from support.manifests.api_pod_tables import EVERY_VOLUME, EVERYTHING
from tokenization_operator.build.children import Attempt, build_checkpoint, build_plan_job, build_ray_job, image_of
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.names import JOB_LABEL, NODE_TYPE_LABEL
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import attempt_digest

SETTINGS = Settings("worker:1", "2.60.0")
OWN = {"tokenization.dev/job": "demo", "tokenization.dev/run": "1", "tokenization.dev/attempt": "1"}
ROLES = ("plan", "submitter", "head", "worker")
HOST_CPU = {
    "workers": {
        "tpu": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8, "share": "HostCpu"}
    }
}


def read(spec: Manifest, **metadata: Any) -> TokenizationJob:
    manifest = with_spec(spec) | {"metadata": {"name": "demo", "namespace": "team", **metadata}}
    return TokenizationJob.from_object(manifest, is_stored=True)


def children(job: TokenizationJob) -> tuple[Manifest, Manifest, Manifest]:
    """Checkpoint, plan Job and RayJob."""
    attempt = Attempt(1, 1, image_of(job, SETTINGS, None), 1)
    return (
        build_checkpoint(job, "uid", attempt, None),
        build_plan_job(job, "uid", attempt, "demo-r1-p1", SETTINGS),
        build_ray_job(job, "uid", attempt, None, SETTINGS),
    )


def templates(spec: Manifest) -> dict[str, Manifest]:
    """The Pods of a job, metadata and spec, by what they are for."""
    _, plan, ray_job = children(read(spec))
    cluster = ray_job["spec"]["rayClusterSpec"]
    made = (
        plan["spec"]["template"],
        ray_job["spec"]["submitterPodTemplate"],
        cluster["headGroupSpec"]["template"],
        cluster["workerGroupSpecs"][0]["template"],
    )
    return dict(zip(ROLES, made, strict=True))


def temporary(template: Manifest) -> Manifest:
    [volume] = [each for each in template["spec"]["volumes"] if each["name"] == "tmp"]
    return dict(volume["emptyDir"])


STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


@pytest.mark.parametrize("role", ROLES)
def test_every_pod_has_the_labels_and_annotations_of_the_job(role: str) -> None:
    template = templates(EVERYTHING)[role]
    assert template["metadata"]["labels"] == EVERYTHING["pods"]["labels"] | OWN
    assert template["metadata"]["annotations"] == EVERYTHING["pods"]["annotations"] | (
        STAYS if role != "worker" else {}
    )


@pytest.mark.parametrize("role", ["plan", "head", "worker"])
def test_volumes_are_where_text_is_read_beside_our_own(role: str) -> None:
    plain, template = templates({})[role]["spec"], templates(EVERYTHING)[role]["spec"]
    ours = [each["name"] for each in plain["volumes"]]
    n = len(EVERY_VOLUME)
    assert template["volumes"][:n] == EVERY_VOLUME, "messages of the API server number them as the job does"
    assert [each["name"] for each in template["volumes"][n:]] == ours
    [container], [bare] = template["containers"], plain["containers"]
    assert container["volumeMounts"] == EVERYTHING["pods"]["volumeMounts"] + bare["volumeMounts"]


def test_the_submitter_has_no_volume_of_the_job() -> None:
    """A claim that one node alone may mount would keep it from the others."""
    template = templates(EVERYTHING)["submitter"]["spec"]
    assert [each["name"] for each in template["volumes"]] == ["tmp"]
    assert [each["name"] for each in template["containers"][0]["volumeMounts"]] == ["tmp"]


@pytest.mark.parametrize("role", ROLES)
def test_no_pod_fills_the_disk_of_its_node(role: str) -> None:
    assert temporary(templates({})[role]) == {"sizeLimit": "10Gi"}
    volumes = templates({})[role]["spec"]["volumes"]
    assert all("sizeLimit" in each["emptyDir"] for each in volumes if "emptyDir" in each)


@pytest.mark.parametrize("role", ["plan", "head", "worker"])
def test_the_size_of_tmp_is_the_jobs(role: str) -> None:
    assert temporary(templates({"pods": {"temporaryVolume": {"sizeLimit": "50Gi"}}})[role]) == {"sizeLimit": "50Gi"}
    assert temporary(templates({"pods": {"temporaryVolume": {}}})[role]) == {"sizeLimit": "10Gi"}


@pytest.mark.parametrize("role", ROLES)
def test_marks_by_which_we_find_our_pods_outrank_those_of_a_stored_job(role: str) -> None:
    labels = {"tokenization.dev/job": "other", "team": "a"}
    assert templates({"pods": {"labels": labels}})[role]["metadata"]["labels"] == OWN | {"team": "a"}


def test_our_annotations_outrank_those_of_the_job() -> None:
    mark = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    found = templates(HOST_CPU | {"pods": {"annotations": {mark: "false", "a": "b"}}})["worker"]["metadata"]
    assert found["annotations"] == {mark: "true", "a": "b"}


@pytest.mark.parametrize("role", ["plan", "submitter"])
def test_a_job_that_adds_nothing_has_pods_with_our_annotation_alone(role: str) -> None:
    assert templates({})[role]["metadata"] == {"labels": OWN, "annotations": STAYS}


def test_both_labels_for_kueue_are_passed_on() -> None:
    kueue = {"kueue.x-k8s.io/queue-name": "tpus", "kueue.x-k8s.io/priority-class": "high"}
    for child in children(read({}, labels={**kueue, "team": "a"})):
        assert child["metadata"]["labels"] == OWN | kueue
    for child in children(read({}, labels={"kueue.x-k8s.io/priority-class": "high"})):
        assert child["metadata"]["labels"] == OWN | {"kueue.x-k8s.io/priority-class": "high"}


@pytest.mark.parametrize("field", EVERYTHING["pods"], ids=str)
def test_what_is_added_matters_for_an_attempt(field: str) -> None:
    added = {name: value for name, value in EVERYTHING["pods"].items() if name in (field, "volumes")}
    before = {name: value for name, value in added.items() if name != field}
    assert attempt_digest(read({"pods": added})) != attempt_digest(read({"pods": before}))


def test_an_empty_block_matters_for_nothing() -> None:
    assert attempt_digest(read({"pods": {}})) == attempt_digest(read({}))


def test_a_stored_job_from_before_a_rule_goes_on() -> None:
    """What it holds is for Kubernetes to judge, as it was before the upgrade."""
    chips = {"example.com/device": 1, "google.com/tpu": 4}
    story = Story({"head": {"resources": {"requests": chips, "limits": chips}}, "image": "Team worker:1"})
    story.plan()
    assert story.where == ("Starting", "WaitingForWorkers")
    [ray_job] = story.api.of(Kind.RAY_JOB)
    [container] = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["image"] == "Team worker:1"
    assert container["resources"]["limits"].items() >= chips.items()


@pytest.mark.testbed
@pytest.mark.parametrize("role", ROLES)
def test_pods_with_all_of_it_are_admitted_under_the_restricted_standard(
    api: client.ApiClient, namespace: str, role: str
) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": WORKERS}})
    template = copy.deepcopy(templates(EVERYTHING)[role])
    template["metadata"]["name"] = "demo"
    made = core.create_namespaced_pod(namespace, template, dry_run="All", field_validation="Strict")
    assert made.metadata.labels["cost-center"] == "research"
    mounted = {mount.mount_path for mount in made.spec.containers[0].volume_mounts}
    assert (role == "submitter") is not (mounted >= {each["mountPath"] for each in EVERYTHING["pods"]["volumeMounts"]})


@pytest.mark.testbed
def test_what_a_job_passes_on_is_checked_before_its_pods_are_made(team: Jobs, tmp_path: Path) -> None:
    def refused(*words: str) -> None:
        status = team.wait("passed-on", lambda status: all(each in status.get("message", "") for each in words))
        assert (status["phase"], status["reason"]) == ("Planning", "ClusterRejected")
        assert not team.all(Kind.POD)

    team.apply("passed-on", local_spec(tmp_path, workers={"tolerations": [{"key": "a", "effect": "Never"}]}))
    refused('"passed-on-workers" is invalid: spec.template.spec.tolerations[0].effect', '"NoSchedule"')
    team.edit("passed-on", {"workers": {"tolerations": None}, "head": {"affinity": {"nodeAfinity": {}}}})
    refused('unknown field "spec.template.spec.affinity.nodeAfinity"')
    team.edit("passed-on", {"head": None, "pods": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}})
    refused("spec.template.spec.containers[0].volumeMounts[0].name", "Not found")
    likes = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"tokenization.dev/job": "passed-on"}},
    }
    workers = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [likes]}},
        "topologySpreadConstraints": [spread],
    }
    team.edit("passed-on", {"pods": None, "workers": workers})
    team.reach("passed-on", "Succeeded")
    assert [reason for _, reason, _ in team.events("passed-on")].count("ClusterRejected") >= 1


@pytest.mark.testbed
def test_a_drain_takes_workers_and_no_head(team: Jobs, api: client.ApiClient, tmp_path: Path) -> None:
    core = client.CoreV1Api(api)

    def evict(node_type: str) -> str:
        """The API server's objection; empty if it lets the Pod go."""
        labels = f"{JOB_LABEL}=drained,{NODE_TYPE_LABEL}={node_type}"
        [pod, *_] = core.list_namespaced_pod(team.namespace, label_selector=labels).items
        eviction = client.V1Eviction(metadata={"name": pod.metadata.name, "namespace": team.namespace})
        try:
            core.create_namespaced_pod_eviction(pod.metadata.name, team.namespace, eviction)
        except client.ApiException as error:
            return str(error.body)
        return ""

    team.apply("drained", local_spec(tmp_path, image="testbed/worker:plan-run.driver-hold"))
    team.wait_for_driver("drained")
    wait_for(lambda: evict("head"), lambda said: "drained-r1-a1 needs 1 healthy pods and has 1 currently" in said)
    assert not evict("worker")
    team.edit("drained", {"suspend": True})
    policy = client.PolicyV1Api(api)
    wait_for(lambda: policy.list_namespaced_pod_disruption_budget(team.namespace).items, lambda left: not left)


@pytest.mark.testbed
def test_a_job_runs_in_pods_with_labels_and_volumes_of_its_own(
    api: client.ApiClient, team: Jobs, tmp_path: Path
) -> None:
    labels = {"cost-center": "research", "app.kubernetes.io/component": "corpus", "app.kubernetes.io/part-of": "llm"}
    pods = {
        "labels": labels,
        "annotations": {"example.com/note": "a b"},
        "volumes": [{"name": "ca", "configMap": {"name": "ca", "optional": True}}, {"name": "disk", "emptyDir": {}}],
        "volumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}, {"name": "disk", "mountPath": "/disk"}],
        "temporaryVolume": {"sizeLimit": "2Gi"},
    }
    seen: dict[str, Manifest] = {}

    def look(status: Manifest) -> bool:
        seen.update((each["metadata"]["name"], each) for each in team.all(Kind.POD))
        for service in client.CoreV1Api(api).list_namespaced_service(team.namespace).items:
            selectors[service.metadata.name] = service.spec.selector or {}
        return status.get("phase") == "Succeeded"

    selectors: dict[str, dict[str, str]] = {}
    team.apply("labelled", local_spec(tmp_path, pods=pods))
    team.wait("labelled", look)
    mine = {name: each for name, each in seen.items() if name.startswith("labelled-r1-")}
    for name, pod in mine.items():
        assert pod["metadata"]["labels"].items() >= labels.items(), name
        assert pod["metadata"]["annotations"]["example.com/note"] == "a b", name
    mounted = [name for name, pod in mine.items() if any(each["name"] == "ca" for each in pod["spec"]["volumes"])]
    assert len(mounted) == len(mine) - 1 >= 3, mine.keys()
    [head] = [pod for name, pod in mine.items() if "-head" in name]
    of_job = {name: each for name, each in selectors.items() if name.startswith("labelled-r1-")}
    of_head = {name: each for name, each in of_job.items() if each.get("ray.io/node-type") == "head"}
    assert of_head
    for name, selector in of_head.items():
        assert head["metadata"]["labels"].items() >= selector.items(), name
