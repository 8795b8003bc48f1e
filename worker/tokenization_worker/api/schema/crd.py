"""The two CustomResourceDefinitions, generated from the models.

Owns what a model cannot say: names, columns, the status subresource. The files in `crds/` are the
output of `generate_crds`, committed; a test compares them. CEL rules come from the models, where each
stands beside the Python predicate that the command line uses.
"""

from __future__ import annotations

from typing import Any

import yaml

from tokenization_worker.api.checkpoint import TokenizationCheckpoint
from tokenization_worker.api.job import DATA_FIELDS, TokenizationJob
from tokenization_worker.api.keys import LIMITS
from tokenization_worker.api.metadata import API_GROUP, VERSION
from tokenization_worker.api.schema.openapi import EXAMPLE, Schema, structural_schema
from tokenization_worker.api.types.model import Block
from tokenization_worker.api.version_skew import LATER_FIELDS

DATA_SENTENCE = (
    "Data: once the job is planned, it changes only together with a new rerunToken and a new output.uri (or "
    "one that holds {rerunToken})."
)
RUN_SENTENCE = "How it runs: may change at any time and applies to the next attempt."
AT_ONCE_SENTENCE = "How it runs: may change at any time and applies at once."
_AT_ONCE = ("suspend", "ttlSecondsAfterFinished", *LIMITS)

_HEADER = "# Generated from the models by `tokjob crd`. Change the models, not this file.\n"

JOB_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Reason", "string", ".status.reason", 0),
    ("Progress", "string", ".status.display.progress", 0),
    ("Rate", "string", ".status.display.rate", 0),
    ("ETA", "string", ".status.display.eta", 0),
    ("Workers", "string", ".status.display.workers", 0),
    ("Attempt", "integer", ".status.attempt.number", 0),
    ("Duration", "string", ".status.display.duration", 1),
    ("Cost", "string", ".status.cost.actual", 1),
    ("Output", "string", ".status.output.uri", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
CHECKPOINT_COLUMNS = (
    ("Stage", "string", ".status.progress.stage", 0),
    ("Completed", "integer", ".status.progress.rangesCompleted", 0),
    ("Ranges", "integer", ".status.progress.rangesTotal", 0),
    ("Index", "string", ".status.committed.indexUri", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def generate_crds() -> dict[str, str]:
    """Return the YAML text of both CRDs by file name."""
    job = _root_schema(TokenizationJob)
    for name, field in job["properties"]["spec"]["properties"].items():
        if name != "rerunToken":
            field["description"] = _insert(_when_it_may_change(name), field["description"])
    for path in LATER_FIELDS:
        _drop_default(job["properties"]["spec"], path.split(".")[1:])
    job["properties"]["status"]["properties"]["conditions"].update(
        {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )

    # Tools take a job without any status for a finished one.
    job["properties"]["status"]["default"] = {"observedGeneration": 0, "phase": "Pending"}

    checkpoint = _root_schema(TokenizationCheckpoint)
    run = checkpoint["properties"]["spec"]["properties"]["run"]
    # The fields were checked on the job; kept whole, so that an older CRD prunes nothing of a newer operator.
    del run["properties"], run["required"]
    run["x-kubernetes-preserve-unknown-fields"] = True
    # After a rollback of the chart, too, what a newer operator has written stays for the next one.
    _preserve_unknown_fields(job["properties"]["status"])
    _preserve_unknown_fields(checkpoint["properties"]["spec"])

    return {
        f"{API_GROUP}_tokenizationjobs.yaml": _dump(
            _definition("TokenizationJob", "tkj", ["tokenization"], JOB_COLUMNS, job)
        ),
        f"{API_GROUP}_tokenizationcheckpoints.yaml": _dump(
            _definition("TokenizationCheckpoint", "tkc", [], CHECKPOINT_COLUMNS, checkpoint)
        ),
    }


def _when_it_may_change(name: str) -> str:
    if name in DATA_FIELDS:
        return DATA_SENTENCE
    return AT_ONCE_SENTENCE if name in _AT_ONCE else RUN_SENTENCE


def _insert(sentence: str, description: str) -> str:
    """The description with another sentence, before its example: that has no end of its own."""
    words, example, value = description.partition(EXAMPLE)
    return f"{words} {sentence}{example}{value}"


def _drop_default(block: Schema, path: list[str]) -> None:
    """Let a later field be absent from jobs that do not set it: an operator that does not know it reads those.

    Neither its own default brings it, nor one of a block that holds it.
    """
    _drop_value(block.get("default"), path)
    name, *below = path
    field = block.get("properties", {}).get(name.removesuffix("[]"), {})
    if not below:
        field.pop("default", None)
        return
    if name.endswith("[]"):
        _drop_value(field.get("default"), below)
        field = field.get("items", {})
    _drop_default(field, below)


def _drop_value(default: Any, path: list[str]) -> None:
    name, *below = path
    for block in default if isinstance(default, list) else [default]:
        if isinstance(block, dict) and below:
            _drop_value(block.get(name.removesuffix("[]")), below)
        elif isinstance(block, dict):
            block.pop(name, None)


def _preserve_unknown_fields(block: Schema) -> None:
    """Let the API server keep the fields of other versions, in this block and in all below it."""
    if block.get("type") != "object" or "additionalProperties" in block:
        return
    block["x-kubernetes-preserve-unknown-fields"] = True
    for field in block.get("properties", {}).values():
        _preserve_unknown_fields(field)


def _root_schema(model: type[Block]) -> Schema:
    schema = structural_schema(model)
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": "The version of the API."}
    properties["kind"] = {"type": "string", "description": "The kind of the object."}
    properties["metadata"] = {"type": "object"}  # Kubernetes has its own schema for it
    schema["required"] = ["spec"]
    return schema


def _definition(
    kind: str,
    short_name: str,
    categories: list[str],
    columns: tuple[tuple[str, str, str, int], ...],
    schema: Schema,
) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    names: dict[str, Any] = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short_name],
    }
    if categories:
        names["categories"] = categories
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": priority} if priority else column


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(definition: dict[str, Any]) -> str:
    return _HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
