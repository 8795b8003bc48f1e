"""The kinds on a real API server: what it refuses, in which words, and what may change when."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from support.cluster.namespaces import new_namespace
from support.manifests.api_manifests import DEFAULTS, MINIMAL, Manifest, with_spec
from support.manifests.api_pod_tables import POD_MISTAKES, PODS_ACCEPTED, PodMistake
from support.manifests.api_tables import ACCEPTED, MISTAKES
from support.places import CHECKOUT
from tokenization_operator.objects.kinds import PLACES, Kind

pytestmark = [pytest.mark.testbed, pytest.mark.core]

PLURAL, KINDS = PLACES[Kind.JOB][:2], PLACES[Kind.JOB].plural
PYTHON_ONLY = {
    "int-float": "a whole number with a point is a whole number in JSON Schema",
    "llmc-count": "CEL does not read numbers such as 100M",
    "rows-31-bits": "as above",
    "special-same": "values of a map cannot be compared with each other in CEL at a bounded cost",
    **dict.fromkeys(
        ("uri-nul", "output-uri-nul", "tokenizer-uri-nul"), "no one writes it; a rule for it would cost each job a scan"
    ),
}
"""Mistakes that the API server cannot see, and why."""


class Server:
    """The jobs of a namespace, as a strict client sends them."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom: Any = client.CustomObjectsApi(api)
        self._namespace = namespace

    def create(self, manifest: Manifest, **how: str) -> Manifest:
        body = {name: value for name, value in manifest.items() if value is not None}
        body["metadata"] = {**body["metadata"], "namespace": self._namespace}
        made: Manifest = self._custom.create_namespaced_custom_object(
            *PLURAL, self._namespace, KINDS, body, **{"field_validation": "Strict", "dry_run": "All"} | how
        )
        return made

    def keep(self, manifest: Manifest) -> Manifest:
        """Create it under a name of its own."""
        body = {**manifest, "metadata": {"generateName": "demo-"}}
        made: Manifest = self._custom.create_namespaced_custom_object(*PLURAL, self._namespace, KINDS, body)
        return made

    def replace(self, manifest: Manifest) -> Manifest:
        name = manifest["metadata"]["name"]
        made: Manifest = self._custom.replace_namespaced_custom_object(
            *PLURAL, self._namespace, KINDS, name, manifest, field_validation="Strict"
        )
        return made

    def report(self, name: str, status: Manifest) -> Manifest:
        made: Manifest = self._custom.patch_namespaced_custom_object_status(
            *PLURAL, self._namespace, KINDS, name, {"status": status}, _content_type="application/merge-patch+json"
        )
        return made


@pytest.fixture(scope="module")
def server(api: client.ApiClient) -> Iterator[Server]:
    with new_namespace(api) as name:
        yield Server(api, name)


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in PYTHON_ONLY])
def test_a_mistake_is_refused(server: Server, name: str) -> None:
    with pytest.raises(ApiException) as caught:
        server.create(with_spec(MISTAKES[name].patch))
    assert caught.value.status in (400, 422), caught.value.body


@pytest.mark.parametrize("mistake", POD_MISTAKES.values(), ids=POD_MISTAKES.keys())
def test_what_no_pod_may_hold_is_refused_in_words(server: Server, mistake: PodMistake) -> None:
    with pytest.raises(ApiException) as caught:
        server.create(with_spec(mistake.patch))
    answer = json.loads(caught.value.body)
    [cause] = answer["details"]["causes"]  # no other, such as "<nil>: some validation rules were not checked"
    assert cause["field"].replace("[", ".").replace("]", "") == mistake.field.replace("[", ".").replace("]", "")
    assert mistake.words in cause["message"]
    assert "<nil>" not in answer["message"]


@pytest.mark.parametrize("patch", (ACCEPTED | PODS_ACCEPTED).values(), ids=(ACCEPTED | PODS_ACCEPTED).keys())
def test_a_right_manifest_is_accepted(server: Server, patch: Manifest) -> None:
    server.create(with_spec(patch))


EXAMPLES = [
    (path.relative_to(CHECKOUT).as_posix(), each)
    for path in sorted(CHECKOUT.glob("examples/**/*.yaml"))
    for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if each["kind"] == "TokenizationJob"
]


@pytest.mark.parametrize("manifest", [each for _, each in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_every_example_is_accepted(server: Server, manifest: Manifest) -> None:
    server.create(manifest)


def test_what_is_left_out_gets_its_default(server: Server) -> None:
    made = server.create(MINIMAL)["spec"]
    expected = with_spec({})["spec"]
    for name, value in DEFAULTS.items():
        expected[name] = value | expected.get(name, {}) if isinstance(value, dict) else expected.get(name, value)
    assert made == expected


# Transitions

BASE = with_spec({"rerunToken": "1"})
PLANNED: Manifest = {"phase": "Running", "plan": {"files": 1}}
FIXED: dict[str, Manifest] = {
    "source": {"source": {"uris": ["gs://corpus/other/*.parquet"]}},
    "text field": {"source": {"textField": "content"}},
    "documents": {"documents": {"maxBytes": "1Mi"}},
    "tokenizer": {"tokenizer": {"name": "gpt2"}},
    "delimiter": {"tokenizer": {"delimiter": {"position": "After"}}},
    "begin": {"tokenizer": {"delimiter": {"begin": "<s>"}}},
    "begin and end": {"tokenizer": {"delimiter": {"begin": "<s>", "end": "</s>"}}},
    "pattern": {"tokenizer": {"name": None, "uri": "gs://m/a", "pattern": "x", "specialTokens": {"</s>": 1}}},
    "shards": {"output": {"shards": {"tokens": 5}}},
    "place": {"output": {"uri": "gs://tokens/other"}},
    "splits": {"output": {"splits": [{"name": "val", "shards": 1}, {"name": "train"}]}},
}
FREE: dict[str, Manifest] = {
    "limits": {"maxQuarantined": "5%", "maxCorruptFiles": 3},
    "workers": {"workers": {"replicas": 9}},
    "image": {"image": "other:1"},
    "suspend": {"suspend": True},
    "a default written out": {"source": {"format": "Auto"}, "documents": {"maxBytes": "64Mi"}},
    "the default position written out": {"tokenizer": {"delimiter": {"position": "Before"}}},
    "a fingerprint": {"tokenizer": {"fingerprint": "ab" * 32}},
    "a token": {"rerunToken": "2"},
    "no token": {"rerunToken": None},
}


@pytest.fixture
def planned(server: Server) -> Manifest:
    return server.report(server.keep(BASE)["metadata"]["name"], PLANNED)


def changed(there: Manifest, patch: Manifest) -> Manifest:
    merged = with_spec(patch, there)
    merged["spec"] = {name: value for name, value in merged["spec"].items() if value is not None}
    return merged


@pytest.mark.parametrize("patch", FIXED.values(), ids=FIXED)
def test_data_of_a_planned_job_is_fixed(server: Server, planned: Manifest, patch: Manifest) -> None:
    with pytest.raises(ApiException) as caught:
        server.replace(changed(planned, patch))
    assert caught.value.status == 422
    assert "change only together with a new rerunToken" in caught.value.body


@pytest.mark.parametrize("patch", FIXED.values(), ids=FIXED)
def test_data_of_a_job_without_a_plan_may_be_corrected(server: Server, patch: Manifest) -> None:
    there = server.keep(BASE)
    server.replace(changed(there, patch))


@pytest.mark.parametrize("patch", FREE.values(), ids=FREE)
def test_how_a_planned_job_runs_may_change(server: Server, planned: Manifest, patch: Manifest) -> None:
    server.replace(changed(planned, patch))


def test_a_position_that_an_earlier_version_stored_may_be_left_out(server: Server) -> None:
    """Version 0.2 stored the default in every job. A client that replaces the whole job changes no data."""
    stored = with_spec({"tokenizer": {"delimiter": {"token": "<s>", "position": "Before"}}}, BASE)
    planned = server.report(server.keep(stored)["metadata"]["name"], PLANNED)
    left_out = copy.deepcopy(planned)
    del left_out["spec"]["tokenizer"]["delimiter"]["position"]
    planned = server.replace(left_out)
    assert planned["spec"]["tokenizer"]["delimiter"] == {"token": "<s>"}
    for delimiter in ({"token": "<s>", "position": "After"}, {"token": "</s>"}, {}, {"end": "<s>"}):
        planned["spec"]["tokenizer"]["delimiter"] = delimiter
        with pytest.raises(ApiException, match="422"):
            server.replace(planned)


def test_a_stored_position_does_not_stand_beside_begin_and_end(server: Server) -> None:
    """A merge keeps it; the message says how to take it out."""
    pair = {"begin": "<s>", "end": "</s>"}
    with pytest.raises(ApiException) as caught:
        server.create(with_spec({"tokenizer": {"delimiter": pair | {"position": "Before"}}}))
    assert "position: null removes one that the API server has stored" in caught.value.body
    made = server.create(with_spec({"tokenizer": {"delimiter": pair}}))
    assert made["spec"]["tokenizer"]["delimiter"] == pair


@pytest.mark.parametrize("patch", FIXED.values(), ids=FIXED)
def test_with_a_new_token_and_a_new_place_data_may_change(server: Server, planned: Manifest, patch: Manifest) -> None:
    new = changed(changed(planned, patch), {"rerunToken": "2", "output": {"uri": "gs://tokens/new"}})
    server.replace(new)


@pytest.mark.parametrize("patch", [p for n, p in FIXED.items() if n != "place"], ids=[n for n in FIXED if n != "place"])
def test_a_new_token_alone_is_not_enough(server: Server, planned: Manifest, patch: Manifest) -> None:
    with pytest.raises(ApiException, match="422"):
        server.replace(changed(changed(planned, patch), {"rerunToken": "2"}))


@pytest.mark.parametrize("patch", [p for n, p in FIXED.items() if n != "place"], ids=[n for n in FIXED if n != "place"])
def test_a_place_that_holds_the_token_is_new_with_it(server: Server, patch: Manifest) -> None:
    base = with_spec({"rerunToken": "1", "output": {"uri": "gs://tokens/{rerunToken}"}})
    there = server.report(server.keep(base)["metadata"]["name"], PLANNED)
    with pytest.raises(ApiException, match="422"):
        server.replace(changed(there, patch))
    server.replace(changed(changed(there, patch), {"rerunToken": "2"}))


def test_a_status_moves_no_generation_and_is_no_users(server: Server, planned: Manifest) -> None:
    assert planned["metadata"]["generation"] == 1
    mine = copy.deepcopy(planned)
    mine["status"] = {"phase": "Succeeded"}
    assert server.replace(mine)["status"]["phase"] == "Running"


def test_kubectls_columns_are_there(api: client.ApiClient) -> None:
    crd = client.ApiextensionsV1Api(api).read_custom_resource_definition("tokenizationjobs.tokenization.dev")
    columns = [column.name for column in crd.spec.versions[0].additional_printer_columns]
    always = ["Phase", "Reason", "Progress", "Rate", "ETA", "Workers", "Attempt"]
    assert columns == [*always, "Duration", "Cost", "Output", "Age"]


def test_a_new_job_says_that_it_waits(server: Server) -> None:
    made = server.keep(with_spec({}))
    assert made["status"] == {"observedGeneration": 0, "phase": "Pending"}


def test_what_a_newer_operator_has_reported_stays_after_its_kinds_are_gone(server: Server, planned: Manifest) -> None:
    """These kinds are the older ones: they do not know the field. The older operator reports, too."""
    name = planned["metadata"]["name"]
    new = {"aFieldOfTomorrow": {"deep": [1]}}
    server.report(name, new | {"run": {"number": 1} | new, "attempt": {"number": 1} | new, "plan": new})
    status = server.report(name, {"phase": "Running", "attempt": {"headPod": "demo-r1-a1-head"}})["status"]
    for block in (status, status["run"], status["attempt"], status["plan"]):
        assert new.items() <= block.items()
