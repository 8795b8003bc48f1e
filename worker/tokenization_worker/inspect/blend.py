"""Weighs the shards of a dataset by group: what a trainer's blend of several files takes.

A group weighs as much as it has tokens, in percent of all, unless a weight is given for it. Its shards share that
weight by their tokens. So without given weights every token is as likely as any other.
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


class Trainer(StrEnum):
    """Who reads the blend."""

    MEGATRON = "megatron"
    MAXTEXT = "maxtext"


@dataclass(frozen=True, slots=True)
class BlendPart:
    """A shard of a blend. `prefix`: its address without the suffixes of its files; `weight`: of all weights, which add
    up to 1."""

    weight: float
    prefix: str
    group: str


def make_blend(
    uri: str | os.PathLike[str], trainer: Trainer, split: str | None = None, weights: Mapping[str, float] | None = None
) -> list[BlendPart]:
    """The shards of a split, the last one where none is named, in the order of the dataset; groups of weight 0 are left
    out.

    `weights`: of groups, in place of their tokens in percent of all. Raises `SpecError` for a dataset of which no such
    blend can be made.
    """
    store = open_store(os.fspath(uri).rstrip("/") or "/")
    index = require_index(store)
    _require_megatron(store.uri, index, trainer)
    name = _require_split(store.uri, index, split)
    given = dict(weights or {})
    groups = planned_groups(index["data"])
    for unknown in (group for group in given if group not in groups):
        step = f"one of: {', '.join(groups)}"
        raise SpecError("GroupUnknown", f"{store.uri} has no group {unknown!r}", next_step=step)
    rows = [row for row in read_shards_table(store, index) if row["split"] == name]
    tokens = {group: sum(row["tokens"] for row in rows if row["group"] == group) for group in groups}
    total = sum(tokens.values())
    of_groups = {group: given.get(group, 100 * count / total) for group, count in tokens.items() if count}
    whole = sum(of_groups.values())
    if not whole:
        raise SpecError("SpecInvalid", "every group has the weight 0", next_step="give a group a weight above 0")
    return [
        BlendPart(
            weight=of_groups[row["group"]] / whole * row["tokens"] / tokens[row["group"]],
            prefix=f"{store.uri}/{_prefix(row)}",
            group=row["group"],
        )
        for row in rows
        if of_groups[row["group"]]
    ]


def _prefix(row: Row) -> str:
    main = next(file for file in files_of_row(row) if file["format"] == OutputFormat.MEGATRON)
    return str(main["path"]).removesuffix(".bin")


def _require_megatron(uri: str, index: Index, trainer: Trainer) -> None:
    """Raise where the trainer cannot read the dataset, or no shard is of one group alone."""
    output = index["data"]["output"]
    if trainer is not Trainer.MEGATRON:
        raise SpecError(
            "FormatUnavailable",
            f"tokjob blend --for {trainer}: tokjob writes no format that MaxText's own loaders read",
            next_step="give --for megatron, or load the groups with tokenization_worker.open_dataset",
        )
    if OutputFormat.MEGATRON not in output["formats"]:
        found = ", ".join(output["formats"])
        raise SpecError(
            "FormatUnavailable",
            f"{uri} has no shards in the format Megatron; it has {found}",
            next_step="make a dataset with output.formats: [Megatron]",
        )
    if not planned_groups(index["data"]):
        has = "its shards hold several groups" if index.get("groups") else "its source has no groups"
        raise SpecError(
            "GroupsNotApart",
            f"{uri} cannot be blended: {has}",
            next_step="make a dataset with source.groups, and with {group} in output.path",
        )


def _require_split(uri: str, index: Index, split: str | None) -> str:
    names = [str(entry["name"]) for entry in index["splits"]]
    if split is not None and split not in names:
        raise SpecError("SplitUnknown", f"{uri} has no split {split!r}", next_step=f"one of: {', '.join(names)}")
    return split or names[-1]
