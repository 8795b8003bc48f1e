"""Says with code of verify's own which documents a split and a group's share take, and what groups add up to."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from tokenization_worker.verification.claims import FileClaim

_PERSON = b"tokjob/group/1"
_ALL = 1 << 64


def stream_of(text: str, thresholds: tuple[int, ...]) -> int:
    """The stream that a document belongs to: by the hash of its text, whatever the dataset says."""
    if not thresholds:
        return 0
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return bisect_right(thresholds, number)


def claimed_hash_ends(source: Mapping[str, Any]) -> dict[str, int]:
    """By group: below what the hash of a document must be; of a group of which all is taken, above every hash.

    `source`: the canonical fields. Raises `KeyError`, `TypeError` or `ValueError` for shares that none can have.
    """
    ends = {}
    for group in source.get("groups", ()):
        share = Fraction(group["share"])
        if not 0 < share <= 1 or group["name"] in ends:
            raise ValueError(f"group {group['name']!r} is listed twice, or its share is {share}")
        ends[group["name"]] = math.ceil(share * _ALL)
    return ends


def is_left_out(text: str, hash_end: int) -> bool:
    """Whether its group's share leaves a document out, whatever the dataset says."""
    if hash_end >= _ALL:
        return False
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=_PERSON).digest(), "big") >= hash_end


def truncated_entry(files: Sequence[FileClaim], longest_document: int | None) -> dict[str, int]:
    """What the index says of the tokens of long documents that are not written: nothing where all are written whole,
    `longest_document` is None."""
    return {} if longest_document is None else {"truncatedTokens": sum(sum(file.truncated) for file in files)}


class GroupShard(NamedTuple):
    """What a shard of a group adds to the group's sums."""

    group: str
    split: str
    documents: int
    tokens: int


def group_entries(
    files: Sequence[FileClaim], splits: Sequence[str], shards: Sequence[GroupShard] | None
) -> list[dict[str, Any]]:
    """The index's entry of each group, added up from its files; none where there are no groups. `shards`: all of them,
    None where groups are not in paths."""
    entries: list[dict[str, Any]] = []
    for name, members in groupby(files, key=lambda file: file.group):
        mine = list(members)
        if name:
            entries.append(
                {
                    "name": name,
                    "files": len(mine),
                    "filesDropped": sum(not file.is_read for file in mine),
                    "documents": sum(sum(file.documents) for file in mine),
                    "bytes": sum(file.read_bytes or 0 for file in mine),
                    "tokens": sum(sum(file.tokens) for file in mine),
                    "quarantined": sum(file.quarantined for file in mine),
                    "leftOut": sum(file.left_out for file in mine),
                }
            )
    for entry in entries if shards is not None else ():
        of_group = [shard for shard in shards or () if shard.group == entry["name"]]
        entry["splits"] = [_split_entry(name, of_group) for name in splits]
    return entries


def _split_entry(name: str, shards: Sequence[GroupShard]) -> dict[str, Any]:
    mine = [shard for shard in shards if shard.split == name]
    return {
        "name": name,
        "documents": sum(shard.documents for shard in mine),
        "tokens": sum(shard.tokens for shard in mine),
        "shards": len(mine),
    }
