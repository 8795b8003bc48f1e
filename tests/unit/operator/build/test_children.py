"""What Pods ask for, and which nodes do not do for them."""

from __future__ import annotations

from typing import Any

import pytest

from tokenization_operator.build.children import Attempt, build_plan_job, build_ray_job, image_of
from tokenization_operator.objects.names import head_pod_prefix
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import TokenizationJob

SETTINGS = Settings("worker:1", "2.60.0")
SPOT, FLEX_START = "cloud.google.com/gke-spot", "cloud.google.com/gke-flex-start"


def templates_of(**spec: Any) -> dict[str, dict[str, Any]]:
    """The templates of the Pods of a job, by what they are for."""
    job = TokenizationJob.from_object(
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
