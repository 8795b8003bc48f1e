"""What Pods ask for, and which nodes do not do for them."""

from __future__ import annotations

from typing import Any

import pytest

from tokenization_operator.build.children import Attempt, build_plan_job, build_ray_job, build_trials, image_of
from tokenization_operator.objects.names import head_pod_prefix
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import TokenizationJob

SETTINGS = Settings("worker:1", "2.60.0")
SPOT, FLEX_START = "cloud.google.com/gke-spot", "cloud.google.com/gke-flex-start"


def templates_of(**spec: Any) -> dict[str, dict[str, Any]]:
    """The templates of the Pods of a job, by what they are for."""
    job = job_of(spec)
    attempt = Attempt(1, 1, image_of(job, SETTINGS, None), 1)
    ray_job = build_ray_job(job, "uid", attempt, None, SETTINGS)["spec"]
    cluster = ray_job["rayClusterSpec"]
    groups = cluster["workerGroupSpecs"]
    return {
        "plan": build_plan_job(job, "uid", attempt, "demo-r1-p1", SETTINGS)["spec"]["template"],
        "submitter": ray_job["submitterPodTemplate"],
        "head": cluster["headGroupSpec"]["template"],
        "worker": groups[0]["template"],
    }


def job_of(spec: dict[str, Any]) -> TokenizationJob:
    return TokenizationJob.from_object(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationJob",
            "metadata": {"name": "demo", "namespace": "team"},
            "spec": {
                "source": {"uris": ["gs://corpus/"]},
                "tokenizer": {"name": "gpt2"},
                "output": {"uri": "gs://tokens/demo"},
                **spec,
            },
        }
    )


def pods_of(**spec: Any) -> dict[str, dict[str, Any]]:
    """Their specs."""
    return {name: template["spec"] for name, template in templates_of(**spec).items()}


def resources(pod: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    found = pod["containers"][0]["resources"]
    return found["requests"], found["limits"]


@pytest.mark.parametrize(
    ("asked", "requests", "limits"),
    [
        ({}, {"cpu": "4", "memory": "8Gi"}, {"memory": "8Gi"}),
        ({"limits": {"memory": "4Gi"}}, {"cpu": "4", "memory": "4Gi"}, {"memory": "4Gi"}),
        ({"limits": {"memory": "64Gi"}}, {"cpu": "4", "memory": "8Gi"}, {"memory": "64Gi"}),
        ({"limits": {"cpu": 2}}, {"cpu": 2, "memory": "8Gi"}, {"cpu": 2, "memory": "8Gi"}),
        ({"requests": {"cpu": 16}}, {"cpu": 16, "memory": "8Gi"}, {"memory": "8Gi"}),
        ({"requests": {"memory": "32Gi"}}, {"cpu": "4", "memory": "32Gi"}, {"memory": "32Gi"}),
    ],
    ids=str,
)
def test_what_is_not_asked_for_fits_what_is(
    asked: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any]
) -> None:
    assert resources(pods_of(workers={"resources": asked})["worker"]) == (requests, limits)


@pytest.mark.parametrize(
    ("cluster", "prefix"),
    [("demo-r1-a1-abcde", "demo-r1-a1-abcde-head"), (51 * "x", 50 * "x" + "-head")],
    ids=["short", "cut by KubeRay"],
)
def test_the_head_pod_is_known_by_its_name(cluster: str, prefix: str) -> None:
    assert head_pod_prefix(cluster) == prefix


def test_a_head_that_asks_for_more_memory_may_take_it() -> None:
    asked = {"requests": {"memory": "8Gi"}}
    assert resources(pods_of(head={"resources": asked})["head"]) == ({"cpu": "1", "memory": "8Gi"}, {"memory": "8Gi"})


def avoided(pod: dict[str, Any]) -> set[str]:
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return {
        each["key"]
        for term in required.get("nodeSelectorTerms", ())
        for each in term["matchExpressions"]
        if each["operator"] == "DoesNotExist"
    }


@pytest.mark.parametrize("role", ["plan", "submitter", "head"])
def test_what_drives_is_on_no_spot_node_whether_it_has_a_taint_or_not(role: str) -> None:
    own = {"nodeSelector": {"pool": "ordinary"}, "tolerations": [{"key": "team", "operator": "Exists"}]}
    pod = pods_of(head=own)[role]
    assert avoided(pod) >= {SPOT, FLEX_START}
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": "ordinary"}
    assert pod["tolerations"] == own["tolerations"]


@pytest.mark.parametrize(("capacity", "nodes"), [("OnDemand", {SPOT, FLEX_START}), ("Any", set()), ("Spot", set())])
def test_workers_on_demand_are_on_no_spot_node(capacity: str, nodes: set[str]) -> None:
    assert avoided(pods_of(workers={"capacity": capacity})["worker"]) == nodes


def test_an_autoscaler_leaves_those_pods_where_they_are_whose_end_costs_the_attempt() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"

    def marks(**spec: Any) -> dict[str, Any]:
        return {
            name: (each["metadata"].get("annotations") or {}).get(key) for name, each in templates_of(**spec).items()
        }

    assert marks() == {"plan": "false", "submitter": "false", "head": "false", "worker": None}
    told = marks(pods={"annotations": {key: "true"}})
    assert told == dict.fromkeys(("plan", "submitter", "head", "worker"), "true"), "as the user says"


REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
OWN_NODES = [{"key": key, "operator": "DoesNotExist"} for key in (SPOT, FLEX_START)]
HOST_CPU = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8, "share": "HostCpu"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, {}),
        ({"nodeAffinity": None}, {}),
        ({"nodeAffinity": {REQUIRED: None}}, {}),
        ({"nodeAffinity": {PREFERRED: [{"weight": 1}]}}, {PREFERRED: [{"weight": 1}]}),
    ],
    ids=["nothing", "null", "null inside", "preferred"],
)
def test_the_affinity_of_a_job_adds_to_ours(asked: dict[str, Any], found: dict[str, Any]) -> None:
    pod = pods_of(workers={"capacity": "OnDemand", "affinity": {"podAffinity": {"a": 1}, **asked}})["worker"]
    own = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": OWN_NODES}]}}
    assert pod["affinity"] == {"podAffinity": {"a": 1}, "nodeAffinity": own | found}


@pytest.mark.parametrize("asked", ["west", {REQUIRED: []}, {REQUIRED: {"nodeSelectorTerms": "west"}}], ids=str)
def test_an_affinity_of_another_shape_is_left_for_the_api_server_to_refuse(asked: Any) -> None:
    pod = pods_of(workers={"capacity": "OnDemand", "affinity": {"nodeAffinity": asked}})["worker"]
    assert pod["affinity"] == {"nodeAffinity": asked}


def test_each_alternative_of_a_job_excludes_our_nodes_and_an_empty_one_stays_empty() -> None:
    west, east = ({"key": "zone", "operator": "In", "values": [zone]} for zone in ("west", "east"))
    asked = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [west]}, {"matchExpressions": [east]}, {}]}}
    pod = pods_of(workers={"capacity": "OnDemand", "affinity": {"nodeAffinity": asked}})["worker"]
    assert pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [west, *OWN_NODES]},
        {"matchExpressions": [east, *OWN_NODES]},
        {},
    ]


def test_workers_that_need_a_host_each_keep_the_jobs_neighbours_away_too() -> None:
    apart = {"topologyKey": "zone", "labelSelector": {}}
    pod = pods_of(workers={"tpu": HOST_CPU, "affinity": {"podAntiAffinity": {REQUIRED: [apart]}}})["worker"]
    theirs, ours = pod["affinity"]["podAntiAffinity"][REQUIRED]
    assert theirs == apart
    assert ours["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("block", ["head", "workers"])
def test_fields_that_are_passed_on_stand_in_the_pods_of_their_block_alone(block: str) -> None:
    fields = {"topologySpreadConstraints": [{"maxSkew": 1}], "schedulerName": "volcano", "runtimeClassName": "gvisor"}
    having = {role for role, pod in pods_of(**{block: fields}).items() if pod.items() >= fields.items()}
    lacking = {role for role, pod in pods_of(**{block: fields}).items() if not pod.keys() & fields.keys()}
    of_head = {"plan", "submitter", "head"}
    assert (having, lacking) == ((of_head, {"worker"}) if block == "head" else ({"worker"}, of_head))


@pytest.mark.parametrize(
    "spec",
    [
        {"workers": {"tolerations": [{"key": "a"}]}},
        {"head": {"affinity": {"a": 1}}},
        {"head": {"schedulerName": "a"}},
        {"pods": {"volumes": [{"name": "v", "emptyDir": {}}]}},
    ],
    ids=str,
)
def test_both_kinds_of_pods_of_an_attempt_are_tried_where_a_job_passes_something_on(spec: dict[str, Any]) -> None:
    job, pods = job_of(spec), pods_of(**spec)
    trials = build_trials(job, "uid", Attempt(1, 0, image_of(job, SETTINGS, None), 1), SETTINGS)
    assert [each["metadata"]["name"] for each in trials] == ["demo-head", "demo-workers"]
    found = [each["spec"]["template"]["spec"] for each in trials]
    assert found == [pods[role] | {"restartPolicy": "Never"} for role in ("head", "worker")]


def test_no_pod_is_tried_where_the_rules_check_all() -> None:
    job = job_of({"env": [{"name": "A", "value": "b"}], "workers": {"nodeSelector": {"a": "b"}}})
    assert build_trials(job, "uid", Attempt(1, 0, image_of(job, SETTINGS, None), 1), SETTINGS) == ()
