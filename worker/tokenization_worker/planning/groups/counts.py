"""What a plan expects of each group of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenization_worker.api.data import DataSpec
from tokenization_worker.events import GroupCounts, GroupPlan
from tokenization_worker.storage.source_file import SourceFile

_FAR = 0.1
"""A group that has so much more or fewer tokens than it asked for is a warning."""


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


def warn_of_budget(group: GroupCounts, data: DataSpec) -> str | None:
    """The warning of a group that has other tokens than it asked for; None where it has about as many, or asked for
    none. A group that is taken whole was told of in the plan.
    """
    share = next(float(each.share or 1) for each in data.source.groups if each.name == group.name)
    if not group.asked or share == 1 or abs(group.tokens - group.asked) <= _FAR * group.asked:
        return None
    off = group.tokens / group.asked - 1
    found = (
        f"group {group.name} has {group.tokens:,} tokens, and {group.asked:,} are asked for "
        f"({abs(off):.0%} {'more' if off > 0 else 'fewer'}): its share of {100 * share:.3g}% follows from an estimate"
    )
    if not group.tokens:
        return found
    better = 100 * min(1.0, share * group.asked / group.tokens)
    return f"{found}; share: {better:.3g}% gives about as many, at another output.uri"
