"""Checks named groups with code of verify's own: which documents a share takes, and what each group adds up to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from itertools import groupby
from typing import Any

from tokenization_worker.verification.claims import FileClaim

_PERSON = b"tokjob/group/1"
_ALL = 1 << 64


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


def group_entries(files: Sequence[FileClaim]) -> list[dict[str, Any]]:
    """The index's entry of each group, added up from its files; none where there are no groups."""
    entries = []
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
    return entries
