"""Foresees groups of which no document is taken, since their share is small.

Where the sample is the whole group, the plan counts the documents that its share takes; otherwise it warns where the
estimated number makes none likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenization_worker.api.data import DataSpec, GroupSpec
from tokenization_worker.errors import DataError
from tokenization_worker.messages.counts import counted
from tokenization_worker.planning.groups.shares import all_left_out, is_in_share
from tokenization_worker.planning.measured import Measured
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile

_CHANCE = 0.01
"""A warning needs a larger chance than this that a group's share takes no document."""


class ShareForesight(NamedTuple):
    """`error`: what the run would certainly end with. `warnings`: of groups of which no document is, or may be,
    taken."""

    error: DataError | None
    warnings: list[str]


def foresee_shares(
    data: DataSpec, measured: Mapping[str, Measured], samples: Sequence[tuple[SourceFile, HeadSample]]
) -> ShareForesight:
    """Look at groups of which a part is taken; `data` has their shares."""
    warnings: list[str] = []
    taken = left_out = 0
    is_certain = bool(data.source.groups)
    for group in data.source.groups:
        found = measured.get(group.name)
        if found is None or not found.is_all:
            is_certain = False
            warnings += [] if found is None else _warn(group, found.documents)
            continue
        end = data.source.hash_ends.get(group.name)
        texts = [text.encode() for file, head in samples if file.group == group.name for text in head.texts]
        mine = len(texts) if end is None else sum(is_in_share(text, end) for text in texts)
        taken += mine
        left_out += len(texts) - mine
        if texts and not mine:
            warnings.append(f"{_subject(group)} takes none of its {counted(len(texts), 'document')}{_STEP}")
    if is_certain and left_out and not taken:
        return ShareForesight(all_left_out(left_out), [])
    return ShareForesight(None, warnings)


_STEP = ": raise its share or tokens if that is not wanted"


def _warn(group: GroupSpec, documents: float) -> list[str]:
    share = float(group.share or 1)
    if share >= 1 or not documents or (1 - share) ** documents <= _CHANCE:
        return []
    return [f"{_subject(group)} may take none of its about {counted(max(1, round(documents)), 'document')}{_STEP}"]


def _subject(group: GroupSpec) -> str:
    share = f"share of {100 * float(group.share or 1):.3g} %"
    asked = f"the {share} that follows from tokens: {group.tokens:,}" if group.tokens is not None else f"its {share}"
    return f"source.groups, group {group.name}: {asked}"
