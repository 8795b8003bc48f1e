"""The field `output.splits`: the named parts of a dataset, and the rules that make them cover it once."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, StringConstraints

from tokenization_worker.api.types.fields import PositiveBigCount, found_twice, require_sign
from tokenization_worker.api.types.model import Rule, SpecBlock
from tokenization_worker.api.types.quantities import parse_percentage

_SPLIT_NAME = r"^[a-z0-9][a-z0-9_-]{0,31}$"
_SHARE = r"^[0-9]{1,2}(\.[0-9]{1,12})?%$"

SplitName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=32),
    Rule(
        "write at most 32 lower-case letters, digits, - and _, beginning with a letter or a digit, such as train",
        cel=f"self.matches(r'{_SPLIT_NAME}')",
        holds=lambda name: bool(re.fullmatch(_SPLIT_NAME, name)),
    ),
]


Share = Annotated[
    str,
    BeforeValidator(require_sign),
    StringConstraints(min_length=1, max_length=16),
    Rule(
        "write a percentage above 0% and below 100%, such as 0.5%",
        cel=f"self.matches(r'{_SHARE}') && self.matches(r'[1-9]')",
        holds=lambda share: bool(re.fullmatch(_SHARE, share)) and parse_percentage(share) > 0,
    ),
]


class Split(SpecBlock):
    """A part of the dataset, such as train or test."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a split has shards or share, not both",
            cel="!(has(self.shards) && has(self.share))",
            holds=lambda s: s.shards is None or s.share is None,
        ),
    )

    name: SplitName = Field(description="The name, used in output.path and by readers.", examples=["test"])
    shards: PositiveBigCount | None = Field(
        default=None,
        description=("The split is this many leading shards. A document at the border may be in both splits."),
        examples=[350],
    )
    share: Share | None = Field(
        default=None,
        description=(
            "The split is this share of all documents, chosen by a hash of the text. Equal texts are in one split, "
            "and a document stays in its split when the corpus grows."
        ),
        examples=["0.5%"],
    )


def _takes_rest_last(splits: list[Split]) -> bool:
    takes = [split.shards is not None or split.share is not None for split in splits]
    return not takes[-1] and all(takes[:-1])


Splits = Annotated[
    list[Split],
    Field(min_length=1, max_length=16),
    Rule(
        "two splits have the same name: give each its own",
        cel="self.all(s, self.exists_one(t, t.name == s.name))",
        holds=lambda splits: len({split.name for split in splits}) == len(splits),
        shows=lambda splits: found_twice(split.name for split in splits),
    ),
    Rule(
        "every split but the last has shards or share, and the last has neither: it takes the rest",
        cel="self.exists_one(s, !has(s.shards) && !has(s.share)) && "
        "!has(self[self.size() - 1].shards) && !has(self[self.size() - 1].share)",
        holds=_takes_rest_last,
    ),
    Rule(
        "shards and share cannot be mixed: give all splits but the last shards, or all of them share",
        cel="!(self.exists(s, has(s.shards)) && self.exists(s, has(s.share)))",
        holds=lambda splits: not (any(s.shards for s in splits) and any(s.share for s in splits)),
    ),
    Rule(
        "the shares add up to 100% or more, which leaves nothing for the last split: make them smaller",
        cel=f"!self.all(s, !has(s.share) || s.share.matches(r'{_SHARE}')) || "
        "self.map(s, has(s.share) ? double(s.share.replace('%', '')) : 0.0).sum() < 100.0",
        holds=lambda splits: sum(parse_percentage(s.share) for s in splits if s.share) < 1,
    ),
]
