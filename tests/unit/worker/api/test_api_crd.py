"""The generated CRDs and reference are those in the repository, structural, bounded and documented."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.manifests.api_manifests import DEFAULTS
from support.manifests.rules import all_rules
from support.places import CHECKOUT, RELEASED
from tokenization_worker.api.checkpoint import TokenizationCheckpoint
from tokenization_worker.api.job import JobSpec, TokenizationJob
from tokenization_worker.api.schema import crd
from tokenization_worker.api.schema.crd import generate_crds
from tokenization_worker.api.schema.openapi import EXAMPLE, write_example
from tokenization_worker.api.schema.reference import generate_reference
from tokenization_worker.api.types.walk import iter_fields
from tokenization_worker.api.version_skew import LATER_FIELDS, LaterField

CRDS = generate_crds()
JOBS = "tokenization.dev_tokenizationjobs.yaml"
CHECKPOINTS = "tokenization.dev_tokenizationcheckpoints.yaml"

Schema = dict[str, Any]


def version_of(name: str) -> Schema:
    (version,) = yaml.safe_load(CRDS[name])["spec"]["versions"]
    return dict(version)


def schema_of(name: str) -> Schema:
    return dict(version_of(name)["schema"]["openAPIV3Schema"])


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema below `schema` with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("name", [JOBS, CHECKPOINTS])
def test_committed_crd_is_what_the_models_give(name: str) -> None:
    assert (CHECKOUT / "crds" / name).read_text(encoding="utf-8") == CRDS[name], (
        "write the output of tokjob crd to crds/"
    )


def test_committed_reference_is_what_the_models_give() -> None:
    assert (CHECKOUT / "docs" / "job-reference.md").read_text(encoding="utf-8") == generate_reference()


@pytest.mark.parametrize("name", [JOBS, CHECKPOINTS])
def test_schema_is_structural_and_bounded(name: str) -> None:
    allowed_untyped = {"metadata"}
    for path, node in nodes(schema_of(name)):
        assert not {"$ref", "anyOf", "oneOf", "title", "examples", "nullable", "const"} & set(node), path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert node["x-kubernetes-list-type"] == ("map" if path == ".status.conditions" else "atomic"), path
        if node.get("type") == "string" and path not in (".apiVersion", ".kind"):
            assert "enum" in node or "maxLength" in node, path
        if node.get("type") == "integer":
            assert node["format"] == "int64", path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        assert "description" in node or path.endswith(("[]", "{}")) or path.strip(".") in allowed_untyped, path


@pytest.mark.parametrize("name", [JOBS, CHECKPOINTS])
def test_every_description_is_whole_sentences_and_then_at_most_an_example(name: str) -> None:
    for path, node in nodes(schema_of(name)):
        words, _, _ = node.get("description", ".").partition(EXAMPLE)
        assert words.endswith("."), path
        assert not re.search(r"[^.A-Z][.!?][A-Z]|[.!?]{2}|  ", words), f"{path}: sentences are glued: {words}"


def test_the_example_of_a_description_is_its_end() -> None:
    schemas = dict(nodes(schema_of(JOBS)["properties"]["spec"], "spec"))
    for entry in iter_fields(JobSpec, "spec"):
        if entry.info.examples:
            end, [example, *_] = schemas[entry.path]["description"].partition(EXAMPLE)[2], entry.info.examples
            is_block = isinstance(example, dict | list)
            assert json.loads(end) == example if is_block else end == write_example(example), f"{entry.path}: {end}"


def test_a_field_says_when_a_change_of_it_counts() -> None:
    fields = schema_of(JOBS)["properties"]["spec"]["properties"]
    assert "applies at once. Example: true" in fields["suspend"]["description"]
    for name in ("activeDeadlineSeconds", "backoffLimit", "infraRetryLimit", "startupDeadlineSeconds"):
        assert "applies at once. Example: " in fields[name]["description"]
    assert "applies to the next attempt. Example: IfNotPresent" in fields["imagePullPolicy"]["description"]
    assert fields["output"]["description"].endswith("(or one that holds {rerunToken}).")


@pytest.mark.parametrize("name", [JOBS, CHECKPOINTS])
def test_no_default_stands_inside_a_list_item(name: str) -> None:
    assert [path for path, node in nodes(schema_of(name)) if "[]" in path and "default" in node] == []


def test_defaults_are_spelled_out_down_to_every_leaf() -> None:
    spec = schema_of(JOBS)["properties"]["spec"]
    written = {path.strip("."): node["default"] for path, node in nodes(spec) if "default" in node}

    def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                yield from leaves(item, f"{path}.{key}".strip("."))
        else:
            yield path, value

    expected = dict(leaves(DEFAULTS, ""))
    assert {path: written[path] for path in expected} == expected
    for path, value in written.items():
        if isinstance(value, dict):
            nested = dict(leaves(value, path))
            below = {leaf: default for leaf, default in expected.items() if leaf.startswith(f"{path}.")}
            assert nested == (below or {path: {}}), path


def test_every_rule_with_cel_is_in_the_crd_with_its_words() -> None:
    found = {
        (entry["message"], entry["rule"])
        for _, node in nodes(schema_of(JOBS))
        for entry in node.get("x-kubernetes-validations", ())
    }
    expected = {(rule.message, rule.cel) for rule in all_rules() if rule.cel is not None}
    assert expected <= found
    values = {message for message, _ in found - {pair for pair in expected if pair}}
    assert all(message.startswith("write a ") for message in values), "only int-or-string rules come from elsewhere"


def test_rules_that_only_one_side_checks_are_these() -> None:
    python_only = {rule.message for rule in all_rules() if rule.cel is None}
    server_only = {rule.message for rule in all_rules() if rule.holds is None}
    assert {message.split(":")[0] for message in python_only - server_only} == {
        "two special tokens have the same id",
        "leave out the NUL character",
        "the formats LlmC and Megatron count tokens in 31 bits",
    }
    assert {message.split(":")[0] for message in server_only - python_only} == {"this job is planned"}


def test_kubectl_shows_the_documented_columns() -> None:
    version = version_of(JOBS)
    columns = version["additionalPrinterColumns"]
    plain = [column["name"].upper() for column in columns if not column.get("priority")]
    wide = [column["name"].upper() for column in columns if column.get("priority")]
    assert plain == ["PHASE", "REASON", "PROGRESS", "RATE", "ETA", "WORKERS", "ATTEMPT", "AGE"]
    assert wide == ["DURATION", "COST", "OUTPUT"]
    assert version["subresources"] == {"status": {}}
    assert yaml.safe_load(CRDS[JOBS])["spec"]["names"]["shortNames"] == ["tkj"]


@pytest.mark.parametrize(
    ("name", "model"), [(JOBS, TokenizationJob), (CHECKPOINTS, TokenizationCheckpoint)], ids=["job", "checkpoint"]
)
def test_columns_read_fields_that_exist(name: str, model: type[TokenizationJob | TokenizationCheckpoint]) -> None:
    paths = {f".{entry.path}" for entry in iter_fields(model)}
    for column in version_of(name)["additionalPrinterColumns"]:
        assert column["jsonPath"] in paths, column


def test_run_of_a_checkpoint_is_required_whole_and_immutable() -> None:
    spec = schema_of(CHECKPOINTS)["properties"]["spec"]
    run = spec["properties"]["run"]
    assert spec["required"] == ["run"]
    assert run["x-kubernetes-preserve-unknown-fields"] is True
    assert "properties" not in run
    assert [entry["rule"] for entry in run["x-kubernetes-validations"]] == ["self == oldSelf"]


def test_every_field_of_the_spec_is_explained_with_an_example() -> None:
    page = generate_reference()
    for entry in iter_fields(JobSpec):
        assert entry.info.description, entry.path
        assert entry.info.examples or entry.block is not None, entry.path
        assert find_row(page, entry.path), entry.path


def find_row(page: str, path: str) -> str | None:
    """The row of a field: its own, that of a block that names its fields, or at the place that `as ...` names."""
    block, _, field = path.partition(".")
    section = page.partition(f"\n## spec.{block}\n" if field else "\n## spec\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\S+)` \| (.*)", section, re.MULTILINE))
    for name, row in rows.items():
        inside = re.fullmatch(re.escape(name) + r"(?:\[\])?\.(.+)", field)
        described = re.search(r", as `(\S+)` \|", row)
        if inside and described:
            return find_row(page, f"{described[1]}.{inside[1]}")
        if inside and re.search(rf"Fields: .*`{re.escape(inside[1])}[.`\[]", row):
            return row
    return rows.get(field or block)


def test_status_stays_below_16_kib_at_a_million_ranges() -> None:
    runs = [{"start": 10**6 - 3 * n, "end": 10**6 - 3 * n + 1} for n in range(64)]
    failures = [{"attempt": 100, "time": "2026-11-21T10:00:00Z", "reason": "HeadLost", "message": "m" * 800}] * 5
    conditions = [{"type": f"C{n}", "status": "True", "reason": "Because", "message": "m" * 300} for n in range(10)]
    job = TokenizationJob.from_yaml(
        (CHECKOUT / "docs" / "job-reference.md").read_text().split("```yaml\n")[1].split("```")[0]
    )
    status = {"progress": {"completedRanges": runs}, "lastFailures": failures, "conditions": conditions}
    with_status = TokenizationJob.from_object(job.to_manifest() | {"status": status})
    assert with_status.status is not None
    assert len(with_status.status.model_dump_json(by_alias=True, exclude_none=True)) < 16 * 1024


FIRST_CHART = RELEASED / "tokenization-operator-0.1.0.tgz"


WITH_0_2_0: frozenset[str] = frozenset()
"""Fields of a job that came with version 0.2.0 and have a default; only later versions work beside the one before."""


def defaults_in(schema: Schema) -> dict[str, Any]:
    """Every default below a schema, by the path of its field."""
    return {path: node["default"] for path, node in nodes(schema) if "default" in node}


def blocks_in(schema: Schema) -> list[Schema]:
    """The blocks below a schema that are in no list."""
    return [
        node
        for path, node in nodes(schema)
        if "[]" not in path and "additionalProperties" not in node and node.get("type") == "object"
    ]


def test_a_field_of_a_job_that_came_later_has_no_default() -> None:
    """With one, every job has it as soon as the kinds are upgraded, and an operator of the version before refuses them
    all. A new field: give it the default None, or an entry in `LATER_FIELDS`."""
    with tarfile.open(FIRST_CHART) as chart:
        file = chart.extractfile(f"tokenization-operator/files/crds/{JOBS}")
        assert file is not None
        first = yaml.safe_load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    added = defaults_in(schema_of(JOBS)["properties"]["spec"]).keys() - defaults_in(first["properties"]["spec"]).keys()
    blocks = tuple(f".{path.removeprefix('run.')}." for path in LATER_FIELDS)  # filled in only where they are written
    assert {path for path in added if not path.startswith(blocks)} == WITH_0_2_0


def test_a_later_data_field_is_absent_from_jobs_that_do_not_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    later = ("run.documents.maxBytes", "run.output.dtype", "run.output.splits[].name", "attempt.rangeBytes")
    monkeypatch.setattr(crd, "LATER_FIELDS", dict.fromkeys(later, LaterField(born=None, minimum_version=None)))
    [version] = yaml.safe_load(generate_crds()[JOBS])["spec"]["versions"]
    before = defaults_in(schema_of(JOBS)["properties"]["spec"])
    after = defaults_in(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    gone = {".documents.maxBytes", ".output.dtype", ".rangeBytes"}
    assert gone <= before.keys()
    assert before.keys() - after.keys() == gone
    assert {path for path in after if after[path] != before[path]} == {".documents", ".output.splits"}
    assert (after[".documents"], after[".output.splits"]) == ({}, [{}])


def test_what_another_version_has_written_is_kept_in_every_block() -> None:
    """Else a chart that is rolled back, and its kinds with it, loses what the newer operator needs again later."""
    for block in (schema_of(JOBS)["properties"]["status"], schema_of(CHECKPOINTS)["properties"]["spec"]):
        blocks = blocks_in(block)
        assert len(blocks) > 1
        assert all(each["x-kubernetes-preserve-unknown-fields"] is True for each in blocks)
    spec = schema_of(JOBS)["properties"]["spec"]
    open_ones = [each for each in blocks_in(spec) if "x-kubernetes-preserve-unknown-fields" in each]
    assert not any("properties" in each for each in open_ones), "typing errors in our own fields are told"
    status = schema_of(CHECKPOINTS)["properties"]["status"]
    assert not any("x-kubernetes-preserve-unknown-fields" in each for each in blocks_in(status)), "Pods write it"
