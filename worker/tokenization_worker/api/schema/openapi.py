"""From pydantic's JSON schema to the structural schema that a CustomResourceDefinition needs.

Differences that this module removes: `$ref` (inlined), "or null" (null means absent), titles, examples
(they become the last sentence of a description), and defaults that hold nulls. It adds list types and
number formats. Defaults stay complete, because the API server checks a parent's default against CEL
before it fills in nested ones.
"""

from __future__ import annotations

import json
from typing import Any

from tokenization_worker.api.types.model import Block

Schema = dict[str, Any]

EXAMPLE = " Example: "
"""Before the last part of a description."""

_COPIED = (
    "type",
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)


def structural_schema(model: type[Block]) -> Schema:
    """Return the OpenAPI v3 schema of `model` in structural form, without references."""
    found = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(found, found.get("$defs", {}))


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _inline(node, definitions)
    result: Schema = {}
    description = node.get("description")
    if description:
        result["description"] = _describe(description, node.get("examples"))
    result.update({key: node[key] for key in _COPIED if key in node})
    if "const" in node:
        result["enum"] = [node["const"]]
    if node.get("default") is not None:
        result["default"] = drop_nulls(node["default"])
    if node.get("type") == "integer":
        result["format"] = "int64"
    if "items" in node:
        result["items"] = _convert(node["items"], definitions)
        result["x-kubernetes-list-type"] = "atomic"
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(node["additionalProperties"], definitions)
    if "properties" in node:
        result["properties"] = {name: _convert(child, definitions) for name, child in node["properties"].items()}
    return result


def _inline(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return `node` with its reference or its only non-null alternative merged in; what the field says
    wins.
    """
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        else:
            (target,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        own = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
        node = {**target, **own}
    return node


def _describe(description: str, examples: list[Any] | None) -> str:
    text = " ".join(description.split())
    if not examples:
        return text
    return f"{text}{EXAMPLE}{write_example(examples[0])}"


def write_example(value: object) -> str:
    """Return `value` as it stands in a manifest: JSON is YAML; text is bare unless it reads as a number or a date."""
    if isinstance(value, str) and not value.replace("-", "").isdigit():
        return value
    return json.dumps(value, ensure_ascii=False)


def drop_nulls(value: Any) -> Any:
    """Return `value` without the entries of mappings that are null, at any depth."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value]
    return value
