"""Keeps status fields that this version does not know, which a newer operator wrote before a rollback. Pure.

Fields of a run stay until the next run, fields of an attempt until the next attempt. A run that this operator begins
has no fields of a newer one. Lists are replaced whole: they are derived.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenization_worker.api.status import JobStatus
from tokenization_worker.api.types.model import Block
from tokenization_worker.api.types.walk import block_type, is_list_type


def keep_unknown_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The status `after`, with the fields of `before` that no model of this version has."""
    if _number(before, "run") != _number(after, "run"):
        return after
    kept = _keep(JobStatus, before, after)
    if "attempt" in after and _number(before, "attempt") != _number(after, "attempt"):
        kept["attempt"] = after["attempt"]
    return kept


def known_fields(model: type[Block], found: dict[str, Any]) -> dict[str, Any]:
    """The block without fields that `model` does not have."""
    blocks = _fields_of(model)
    known = {}
    for name, value in found.items():
        if name in blocks:
            block = blocks[name]
            known[name] = value if block is None or not isinstance(value, dict) else known_fields(block, value)
    return known


def _keep(model: type[Block], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    blocks = _fields_of(model)
    kept = {name: value for name, value in before.items() if name not in blocks} | after
    for name, block in blocks.items():
        old, new = before.get(name), after.get(name)
        if block is not None and isinstance(old, dict) and isinstance(new, dict):
            kept[name] = _keep(block, old, new)
    return kept


@cache
def _fields_of(model: type[Block]) -> dict[str, type[Block] | None]:
    """The fields of a block by their serialized names, with the type of each nested block; None for values and
    lists."""
    return {
        str(info.alias): None if is_list_type(info.annotation) else block_type(info.annotation)
        for info in model.model_fields.values()
    }


def _number(status: dict[str, Any], block: str) -> object:
    return (status.get(block) or {}).get("number")
