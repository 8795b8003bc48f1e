"""The entries of `source.groups`: named parts of a corpus, and how much of each is taken.

Owns their fields, documentation and rules. A share that follows from `tokens` is found in the plan, and pinned there.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from tokenization_worker.api.types.fields import found_twice, int_or_string, require_sign
from tokenization_worker.api.types.model import RULE_ERROR, Rule, SpecBlock
from tokenization_worker.api.types.quantities import QUANTITY_PATTERN, parse_percentage, parse_quantity
from tokenization_worker.api.uris import NO_NUL, READABLE_URI

MOST_GROUPS = 64
_NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
_SHARE = r"^([0-9]{1,2}(\.[0-9]{1,12})?|100)%$"
_EXPONENT = r"[1-9][0-9]{0,2}(\.[0-9]{1,15})?[eE]\+?[0-9]{1,2}"
_BUDGET = rf"{QUANTITY_PATTERN}|^{_EXPONENT}$"
_BUDGET_MESSAGE = "write a whole number of tokens above 0, such as 10000000000, 10e9 or 10G, and at most 2^53"
_MOST_TOKENS = 2**53


def _budget(value: Any) -> int:
    """The number that `10e9`, `10G` or a number stands for."""
    number: int | Fraction = 0
    if isinstance(value, str) and re.fullmatch(_EXPONENT, value):
        number = Fraction(value)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        try:
            number = parse_quantity(value)
        except ValueError:
            number = 0
    if not 1 <= number <= _MOST_TOKENS or number != int(number):
        raise PydanticCustomError(RULE_ERROR, _BUDGET_MESSAGE)
    return int(number)


GroupName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=40),
    Rule(
        "write at most 40 lower-case letters, digits and -, with a letter or a digit at both ends, such as code",
        cel=f"self.matches(r'{_NAME}')",
        holds=lambda name: bool(re.fullmatch(_NAME, name)),
    ),
]
GroupShare = Annotated[
    str,
    BeforeValidator(require_sign),
    StringConstraints(min_length=1, max_length=16),
    Rule(
        "write a percentage above 0%, such as 30%, and at most 100%",
        cel=f"self.matches(r'{_SHARE}') && self.matches(r'[1-9]')",
        holds=lambda share: bool(re.fullmatch(_SHARE, share)) and parse_percentage(share) > 0,
    ),
]
TokenBudget = Annotated[
    int,
    BeforeValidator(_budget),
    int_or_string(_BUDGET, 1, _BUDGET_MESSAGE, _MOST_TOKENS),
]


GroupUri = Annotated[str, StringConstraints(min_length=1, max_length=512), READABLE_URI, NO_NUL]
"""Shorter than those of a source without groups: the API server bounds what checking all of them may cost."""


class Group(SpecBlock):
    """A named part of the corpus, such as web, code or a language."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a group has share or tokens, not both",
            cel="!(has(self.share) && has(self.tokens))",
            holds=lambda group: group.share is None or group.tokens is None,
        ),
    )

    name: GroupName = Field(
        description="The name, used in output.path as {group}, in counts and by readers.", examples=["code"]
    )
    uris: list[GroupUri] = Field(
        min_length=1,
        max_length=32,
        description="Files, folders or globs, as in source.uris. No file may be in two groups.",
        examples=[["gs://corpus/code/*.parquet"]],
    )
    share: GroupShare | None = Field(
        default=None,
        description=(
            "How much of the group is taken: this share of its documents, chosen by a hash of the text. Absent, and "
            "without tokens: all of it. A larger share contains a smaller one."
        ),
        examples=["30%"],
    )
    tokens: TokenBudget | None = Field(
        default=None,
        description=(
            "In place of share: about so many tokens of the group. The plan computes the share from an estimate, and "
            "keeps it; the index says how many tokens it gave."
        ),
        examples=[10_000_000_000],
    )


Groups = Annotated[
    list[Group],
    Field(min_length=1, max_length=MOST_GROUPS),
    Rule(
        "two groups have the same name: give each its own",
        cel="self.all(g, self.exists_one(h, h.name == g.name))",
        holds=lambda groups: len({group.name for group in groups}) == len(groups),
        shows=lambda groups: found_twice(group.name for group in groups),
    ),
]


PATH_RULES: tuple[Rule, ...] = (
    Rule(
        "output.path holds {group}, and the source has no groups: write source.groups, or take {group} out of "
        "output.path",
        cel="!self.output.path.contains('{group}') || has(self.source.groups)",
        holds=lambda s: "{group}" not in s.output.path or s.source.groups is not None,
        field="output.path",
    ),
    Rule(
        "with output.sequence the folder parts/ is taken by what describes the rows, and a group is called parts: "
        "begin output.path with another word than {group}",
        cel="!has(self.output.sequence) || !has(self.source.groups) || !self.output.path.startsWith('{group}/') || "
        "!self.source.groups.exists(g, g.name == 'parts')",
        holds=lambda s: (
            s.output.sequence is None
            or not s.output.path.startswith("{group}/")
            or all(group.name != "parts" for group in s.source.groups or ())
        ),
        field="output.path",
    ),
)
"""Of a whole spec: what `{group}` in output.path needs."""
