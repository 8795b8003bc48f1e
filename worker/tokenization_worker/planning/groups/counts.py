"""What a plan expects of each group of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenization_worker.api.data import DataSpec
from tokenization_worker.events import GroupPlan
from tokenization_worker.storage.source_file import SourceFile


def plan_groups(data: DataSpec, files: Sequence[SourceFile], tokens: Mapping[str, int | None]) -> tuple[GroupPlan, ...]:
    """One for each group; none where there are no groups. `tokens`: estimated, of the documents that are taken."""
    sizes: dict[str, list[int]] = {group.name: [] for group in data.source.groups}
    for file in files if sizes else ():
        sizes[file.group].append(file.size)
    return tuple(
        GroupPlan(
            name=group.name,
            files=len(sizes[group.name]),
            stored_bytes=sum(sizes[group.name]),
            share=float(group.share or 1),
            tokens=tokens.get(group.name),
        )
        for group in data.source.groups
    )
