"""Decides which documents of a group are taken, and finds the shares of groups that ask for tokens. Pure.

A document's group is its file's. It is in if a hash of its text lies below the group's share of all hashes: equal texts
share a fate across groups, and a larger share contains a smaller one. The hash has a person of its own, so that it says
nothing of a document's split. A share that follows from `tokens` is computed once, and kept in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from typing import Any

from tokenization_worker.api.data import DataSpec, GroupSpec, hash_end
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.counts import counted

_PERSON = b"tokjob/group/1"
_SHARE_BITS = 12
"""Significant bits of a share that follows from an estimate, which is no more exact: two estimators that nearly agree
mostly give one share."""


def is_in_share(text: bytes, hash_end: int) -> bool:
    """Whether a document of UTF-8 `text` is among those whose hash is below `hash_end`."""
    return int.from_bytes(blake2b(text, digest_size=8, person=_PERSON).digest(), "big") < hash_end


def hash_ends_of(source: Mapping[str, Any]) -> dict[str, int]:
    """Of each group of which a part is taken; `source`: the canonical fields that an index has."""
    shares = {group["name"]: Fraction(group["share"]) for group in source.get("groups", ())}
    return {name: hash_end(share) for name, share in shares.items() if share < 1}


def all_left_out(documents: int, unusable: str = "") -> DataError:
    """The error of a run whose shares take none of these usable documents; `unusable`: how many others there are, in
    words."""
    every = f"all {counted(documents, 'document')}" if documents > 1 else "the only document"
    return DataError(
        "NoDocuments",
        f"no document was written: the shares of source.groups leave out {every}"
        + (f" that can be used; {unusable}" if unusable else ""),
        next_step="raise the share or tokens of a group; if the run had begun, write elsewhere or `tokjob clean` this "
        "output",
    )


def resolve_shares(data: DataSpec, tokens: Mapping[str, float | None], watch: Watcher) -> DataSpec:
    """`data` with the shares that give about the tokens that its groups ask for.

    `tokens`: estimated, of all documents of each group; None where that is not known, which is an error for a group
    that asks for some. `watch` is told of groups that have fewer than they are asked for.
    """
    return _with_shares(data, [_share_of(group, tokens[group.name], watch) for group in data.source.groups])


def _share_of(group: GroupSpec, tokens: float | None, watch: Watcher) -> Fraction:
    if group.tokens is None:
        assert group.share is not None
        return group.share
    if tokens is None:
        raise SpecError(
            "SpecInvalid",
            f"source.groups: tokjob cannot estimate the tokens of group {group.name}, because the sampled beginnings "
            "of its files hold no whole document",
            next_step=f"write a share of group {group.name} in place of tokens",
        )
    if tokens <= group.tokens:
        watch(
            Warned(
                f"group {group.name} has about {round(tokens):,} tokens, and {group.tokens:,} are asked for: this run "
                "takes all of its documents"
            )
        )
        return Fraction(1)
    return round_down(Fraction(group.tokens) / Fraction(tokens))


def round_down(share: Fraction) -> Fraction:
    """The largest number of 12 significant bits that is not above `share`, which is above 0 and below 1."""
    scale = 1 << _SHARE_BITS
    while share * scale < 1 << (_SHARE_BITS - 1):
        scale <<= 1
    while share * scale >= 1 << _SHARE_BITS:
        scale >>= 1
    return Fraction(int(share * scale), scale)


def pin_shares(data: DataSpec, planned: Mapping[str, Any], is_same: Callable[[DataSpec], bool]) -> DataSpec | None:
    """`data` with the shares of canonical fields that a plan or an index holds; None where these are of other data.

    `is_same`: whether all else is the same, too.
    """
    groups = planned["source"].get("groups", [])
    if [group["name"] for group in groups] != [group.name for group in data.source.groups]:
        return None
    pinned = _with_shares(data, [Fraction(group["share"]) for group in groups])
    return pinned if is_same(pinned) else None


def _with_shares(data: DataSpec, shares: Sequence[Fraction]) -> DataSpec:
    groups = tuple(replace(group, share=share) for group, share in zip(data.source.groups, shares, strict=True))
    return replace(data, source=replace(data.source, groups=groups))


def asks_for_tokens(data: DataSpec) -> bool:
    """Whether a share follows from an estimate."""
    return any(group.tokens is not None for group in data.source.groups)
