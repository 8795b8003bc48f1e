"""What the operator remembers of objects is enough to decide, and little."""

from __future__ import annotations

import json
from typing import Any

from tokenization_operator.informer.cache import Cache, prune
from tokenization_operator.objects.kinds import Kind

FIELDS = [{"manager": "kubelet", "fieldsV1": {f"f:{number}": {} for number in range(100)}}]
METADATA: dict[str, Any] = {"name": "demo", "namespace": "team", "uid": "u", "resourceVersion": "1"}
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "worker:1", "env": [{"name": "A", "value": "b"}]}]}}


def test_a_pod_keeps_its_labels_owners_status_and_the_sizes_of_its_containers() -> None:
    resources = {"limits": {"memory": "1Gi"}}
    pod = {
        "metadata": METADATA | {"labels": {"a": "b"}, "ownerReferences": [{"uid": "o"}], "managedFields": FIELDS},
        "spec": {
            "containers": [{"name": "ray", "image": "worker:1", "resources": resources, "env": [{"name": "A"}]}],
            "volumes": [{"name": "v"}],
        },
        "status": {"phase": "Running"},
    }
    found = prune(Kind.POD, pod)
    assert found["metadata"] == METADATA | {"labels": {"a": "b"}, "ownerReferences": [{"uid": "o"}]}
    assert found["spec"] == {"containers": [{"resources": resources}]}
    assert found["status"] == {"phase": "Running"}
    assert pod["metadata"]["managedFields"] == FIELDS, "what was given stays as it is"


def test_a_ray_job_keeps_its_head_and_its_states() -> None:
    cluster = {
        "authOptions": {"mode": "token"},
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"template": TEMPLATE}],
    }
    states = {"jobStatus": "RUNNING", "rayClusterName": "demo-x"}
    ray_job = {
        "metadata": METADATA,
        "spec": {"suspend": False, "rayClusterSpec": cluster},
        "status": {**states, "rayClusterStatus": {"conditions": list(range(100))}},
    }
    found = prune(Kind.RAY_JOB, ray_job)
    kept = {"headGroupSpec": {"template": TEMPLATE}}
    assert found["spec"] == {"suspend": False, "rayClusterSpec": kept}
    assert found["status"] == states


def test_what_is_known_is_trimmed() -> None:
    cache = Cache()
    cache.put(Kind.JOB, {"metadata": METADATA | {"managedFields": FIELDS}, "spec": {"source": {}}})
    found = cache.get(Kind.JOB, "team", "demo")
    assert found == {"metadata": METADATA, "spec": {"source": {}}}
    assert "managedFields" not in json.dumps(found)
