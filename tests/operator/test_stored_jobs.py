"""Jobs that are stored since before a rule was there: their status, their other fields and their end are free."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from support.cluster.jobs import wait_for
from support.cluster.namespaces import new_namespace
from support.manifests.api_manifests import Manifest, with_spec
from support.places import CHECKOUT
from testbed.cluster import Testbed

pytestmark = pytest.mark.testbed

CRD = CHECKOUT / "crds" / "tokenization.dev_tokenizationjobs.yaml"
GROUP = f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.stored.example"
"""Of each process of tests: they share a control plane, and their rules come at different times."""
OLD_VALUES: Manifest = {
    "image": "my image:latest",
    "serviceAccountName": "Tokenization Worker",
    "imagePullSecrets": [{"name": "My_Secret"}],
    "env": [{"name": "1A", "value": "x"}],
    "envFrom": [{"secretRef": {"name": "A b"}}],
    "workers": {
        "resources": {"requests": {"cpu": "4cores", "memory": -1, "google.com/tpu": 4}, "limits": {"memory": "8 GB"}},
        "nodeSelector": {"node pool": "a b"},
        "priorityClassName": "High",
    },
    "head": {"resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "1Gi"}}},
}
"""All that an earlier version took and this one does not."""


def kind_of_its_own(*, has_rules: bool) -> Manifest:
    """Our kind in a group of its own, so that no other test sees what becomes of it."""
    crd: Manifest = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    crd["spec"]["group"] = GROUP
    crd["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{GROUP}"
    for name in ("shortNames", "categories"):
        crd["spec"]["names"].pop(name, None)
    if not has_rules:
        _without_rules(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return crd


def _without_rules(schema: Manifest) -> None:
    schema.pop("x-kubernetes-validations", None)
    for child in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(child, dict):
            _without_rules(child)


class Stored:
    """The jobs of that kind in a namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom: Any = client.CustomObjectsApi(api)
        self._place = (GROUP, "v1alpha1", namespace, "tokenizationjobs")

    def create(self, name: str, patch: Manifest, **how: Any) -> None:
        body = with_spec(patch) | {"apiVersion": f"{GROUP}/v1alpha1", "metadata": {"name": name}}
        self._custom.create_namespaced_custom_object(*self._place, body, **how)

    def patch(self, name: str, body: Manifest, *, is_status: bool = False) -> Manifest:
        calls = self._custom.patch_namespaced_custom_object, self._custom.patch_namespaced_custom_object_status
        made: Manifest = calls[is_status](*self._place, name, body, _content_type="application/merge-patch+json")
        return made

    def delete(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(*self._place, name)

    def names(self) -> list[str]:
        found = self._custom.list_namespaced_custom_object(*self._place)
        return [each["metadata"]["name"] for each in found["items"]]

    def refuses(self, patch: Manifest) -> bool:
        try:
            self.create("new", patch, dry_run="All")
        except ApiException as error:
            assert error.status in (404, 422, 429), error.body  # also a kind that is not served yet
            return error.status == 422
        return False

    def takes(self, patch: Manifest) -> bool:
        try:
            self.create("new", patch, dry_run="All")
        except ApiException as error:
            assert error.status in (404, 422, 429), error.body
            return False
        return True


@pytest.fixture(scope="module")
def stored(bed: Testbed, api: client.ApiClient) -> Iterator[Stored]:
    """One job with all these values, stored before the rules came."""
    bed.apply(kind_of_its_own(has_rules=False))
    try:
        with new_namespace(api) as namespace:
            jobs = Stored(api, namespace)
            wait_for(lambda: jobs.takes(OLD_VALUES), bool)
            for name in ("old", "held"):
                jobs.create(name, OLD_VALUES)
            bed.apply(kind_of_its_own(has_rules=True))
            wait_for(lambda: jobs.refuses({"image": "my image"}), bool)
            yield jobs
    finally:
        client.ApiextensionsV1Api(api).delete_custom_resource_definition(f"tokenizationjobs.{GROUP}")


@pytest.mark.parametrize("field", OLD_VALUES, ids=str)
def test_a_new_job_with_such_a_value_is_refused(stored: Stored, field: str) -> None:
    assert stored.refuses({field: OLD_VALUES[field]})


def test_the_status_of_a_stored_job_goes_on(stored: Stored) -> None:
    made = stored.patch("old", {"status": {"phase": "Running", "message": "3 of 9 ranges"}}, is_status=True)
    assert made["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"team": "a"}}},
        {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}},
        {"spec": {"suspend": True}},
        {"spec": {"workers": {"replicas": 3}}},
        {"spec": {"head": {"priorityClassName": "batch"}}},
        {"spec": {"image": "worker:2"}},
    ],
    ids=["label", "annotation", "suspend", "beside it", "another block", "a correction"],
)
def test_other_fields_of_a_stored_job_may_change(stored: Stored, change: Manifest) -> None:
    stored.patch("old", copy.deepcopy(change))


@pytest.mark.parametrize(
    "change",
    [
        {"serviceAccountName": "Other Worker"},
        {"workers": {"priorityClassName": "Higher"}},
        {"workers": {"resources": {"limits": {"memory": "9 GB"}}}},
        {"env": [{"name": "2B", "value": "x"}]},
    ],
    ids=["name", "nested", "quantity", "list"],
)
def test_a_stored_value_may_not_change_into_another_such_value(stored: Stored, change: Manifest) -> None:
    with pytest.raises(ApiException) as caught:
        stored.patch("old", {"spec": change})
    assert caught.value.status == 422


def test_a_stored_job_is_deleted_and_its_finalizer_removed(stored: Stored) -> None:
    stored.patch("held", {"metadata": {"finalizers": ["example.com/hold"]}})
    stored.delete("held")
    assert "held" in stored.names()
    stored.patch("held", {"metadata": {"finalizers": []}})
    assert "held" not in stored.names()
