"""Weighs the shards of a dataset by group: what a trainer's blend of several files takes.

A group weighs as much as it has tokens, in percent of all, unless a weight is given for it. Its shards share that
weight by their tokens. So without given weights every token is as likely as any other. A dataset without groups is
weighed as one group.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tokenization_worker.api.data import OutputFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.output.index import Index, require_index
from tokenization_worker.output.naming import planned_groups
from tokenization_worker.output.tables import Row, files_of_row, read_shards_table
from tokenization_worker.storage.open import open_store

NO_GROUP = ""
"""The group of all shards where a dataset has no groups."""


class Trainer(StrEnum):
    """Who reads the blend."""

    MEGATRON = "megatron"


@dataclass(frozen=True, slots=True)
class BlendPart:
    """A shard of a blend. `prefix`: its address without the suffixes of its files; `weight`: of all weights, which add
    up to 1."""

    weight: float
    prefix: str
    group: str


def make_blend(
    uri: str | os.PathLike[str], split: str | None = None, weights: Mapping[str, float] | None = None
) -> list[BlendPart]:
    """The shards of a split, the last one where none is named, in the order of the dataset; groups of weight 0 are left
    out.

    `weights`: of groups, in place of their tokens in percent of all. Raises `SpecError` for a dataset of which no such
    blend can be made.
    """
    store = open_store(os.fspath(uri).rstrip("/") or "/")
    index = require_index(store)
    _require_megatron(store.uri, index)
    name = _require_split(store.uri, index, split)
    given = dict(weights or {})
    groups = planned_groups(index["data"]) or (NO_GROUP,)
    for unknown in (group for group in given if group not in groups or group == NO_GROUP):
        step = f"one of: {', '.join(groups)}" if groups != (NO_GROUP,) else "leave --weight out: it has no groups"
        raise SpecError("GroupUnknown", f"{store.uri} has no group {unknown!r}", next_step=step)
    rows = [row for row in read_shards_table(store, index) if row["split"] == name]
    tokens = {group: sum(row["tokens"] for row in rows if _group_of(row) == group) for group in groups}
    total = sum(tokens.values())
    of_groups = {group: given.get(group, 100 * count / total) for group, count in tokens.items() if count}
    whole = sum(of_groups.values())
    if not whole:
        raise SpecError("SpecInvalid", "every group has the weight 0", next_step="give a group a weight above 0")
    return [
        BlendPart(
            weight=of_groups[_group_of(row)] / whole * row["tokens"] / tokens[_group_of(row)],
            prefix=f"{store.uri}/{_prefix(row)}",
            group=_group_of(row),
        )
        for row in rows
        if of_groups[_group_of(row)]
    ]


def _group_of(row: Row) -> str:
    return str(row.get("group", NO_GROUP))


def _prefix(row: Row) -> str:
    main = next(file for file in files_of_row(row) if file["format"] == OutputFormat.MEGATRON)
    return str(main["path"]).removesuffix(".bin")


def _require_megatron(uri: str, index: Index) -> None:
    """Raise where Megatron cannot read the dataset, or its shards hold several groups."""
    output = index["data"]["output"]
    if OutputFormat.MEGATRON not in output["formats"]:
        found = ", ".join(output["formats"])
        raise SpecError(
            "FormatUnavailable",
            f"{uri} has no shards in the format Megatron; it has {found}",
            next_step="make a dataset with output.formats: [Megatron]",
        )
    if index.get("groups") and not planned_groups(index["data"]):
        raise SpecError(
            "GroupsNotApart",
            f"{uri} cannot be blended: its shards hold several groups",
            next_step="make a dataset with {group} in output.path",
        )


def _require_split(uri: str, index: Index, split: str | None) -> str:
    names = [str(entry["name"]) for entry in index["splits"]]
    if split is not None and split not in names:
        raise SpecError("SplitUnknown", f"{uri} has no split {split!r}", next_step=f"one of: {', '.join(names)}")
    return split or names[-1]
