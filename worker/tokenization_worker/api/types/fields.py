"""The value types that several blocks share, each with its bounds, its words and its CRD schema.

Invariant: a value of one of these types is kept as written; `quantities.py` turns it into a number. Lengths
are bounded because the API server estimates the cost of every CEL rule from them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from tokenization_worker.api.types.model import RULE_ERROR, Rule
from tokenization_worker.api.types.quantities import (
    LIMIT_PATTERN,
    QUANTITY_PATTERN,
    Limit,
    nearest_number,
    nearest_percentage,
    parse_quantity,
    too_large,
)


def _kept_as_written(parse: Callable[[Any], object], message: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        try:
            parse(value)
        except ValueError:
            raise PydanticCustomError(RULE_ERROR, _with_hint(value, message)) from None
        return value

    return BeforeValidator(check)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) or str(value).isdecimal()


def _with_hint(value: object, message: str) -> str:
    """`message` behind what to write in place of `value`, where that can be told."""
    if (most := too_large(value)) is not None:
        return f"{most} bytes" if message == QUANTITY_MESSAGE and "%" not in most else most
    percentage = nearest_percentage(value) if "%" in message and not _is_whole(value) else None
    written = percentage if percentage is not None else nearest_number(value)
    if percentage is not None and not str(value).endswith("%") and Fraction(str(value)) > 1:
        written = f"{percentage}, or the count {int(Fraction(str(value)))}"
    if percentage is not None and re.search(r"\s%$", str(value)):
        written = f"{percentage} without the blank"
    return message if written is None else f"write {written} ({message.removeprefix('write ')})"


def found_twice(names: Iterable[str]) -> str:
    """What a rule shows of a list in which a name is not unique."""
    name, count = Counter(names).most_common(1)[0]
    return f'"{name}" stands {"twice" if count == 2 else f"{count} times"}'


def require_sign(value: Any) -> Any:
    """Refuse a share without its sign, with what to write."""
    meant = None if isinstance(value, str) and value.endswith("%") and value[0] != "." else nearest_percentage(value)
    if meant is not None:
        raise PydanticCustomError(RULE_ERROR, f"a share is a percentage: write {meant}")
    return value


def _counted(value: Any) -> Any:
    """The number that a text stands for."""
    if not isinstance(value, str):
        return value
    try:
        return parse_quantity(value)
    except ValueError:
        raise PydanticCustomError(RULE_ERROR, _with_hint(value, COUNT_MESSAGE)) from None


def int_or_string(pattern: str, minimum: int, message: str, maximum: int | None = None) -> WithJsonSchema:
    """The schema of a number that may be written as a text."""
    most = "" if maximum is None else f" && self <= {maximum}"
    rule = Rule(message, cel=f"type(self) == int ? self >= {minimum}{most} : self.matches(r'{pattern}')", holds=None)
    return WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [rule.as_validation()],
        }
    )


@dataclass(frozen=True, slots=True)
class TypeWords:
    """What a type is called in the reference, where its Python name says too little."""

    words: str


QUANTITY_MESSAGE = (
    "write a number of bytes above 0, such as 268435456, or with a unit Ki, Mi, Gi, Ti, k, M, G, T: 256Mi"
)
LIMIT_MESSAGE = "write a count such as 10, or with a unit k, M, G, T: 1k, or a percentage such as 0.1%"
COUNT_MESSAGE = "write a whole number above 0, such as 1000000, or with a unit Ki, Mi, Gi, Ti, k, M, G, T: 1M"

Quantity = Annotated[
    int | str,
    TypeWords("quantity"),
    _kept_as_written(parse_quantity, QUANTITY_MESSAGE),
    int_or_string(QUANTITY_PATTERN, 1, QUANTITY_MESSAGE),
]
LimitValue = Annotated[
    int | str,
    TypeWords("count or percentage"),
    _kept_as_written(Limit.parse, LIMIT_MESSAGE),
    int_or_string(LIMIT_PATTERN, 0, LIMIT_MESSAGE),
]

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Flag = Annotated[bool, Strict()]
MAX_INT32 = 2**31 - 1
Count = Annotated[int, Strict(), Field(ge=0, le=MAX_INT32)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=MAX_INT32)]
BigCount = Annotated[int, Strict(), Field(ge=0, le=2**53)]
PositiveBigCount = Annotated[
    int,
    Strict(),
    Field(ge=1, le=2**53),
    BeforeValidator(_counted),
    int_or_string(QUANTITY_PATTERN, 1, COUNT_MESSAGE, 2**53),
]
"""Of the data: how many tokens or shards. Read as a number, whatever the form."""
KubernetesObject = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
"""A part of a Pod that is passed on as it is: the API server checks it when it tries the Pods of a job."""

BYTE_TOKENS = 256
_LEAST_TOKENS = BYTE_TOKENS + 1
_MOST_TOKENS = 2**24
_MOST_SIZES = 8


def _sized(value: Any) -> int:
    """One size of a vocabulary, as a number."""
    size = _counted(value)
    if not isinstance(size, int) or isinstance(size, bool):
        raise PydanticCustomError(RULE_ERROR, COUNT_MESSAGE)
    if not _LEAST_TOKENS <= size <= _MOST_TOKENS:
        raise PydanticCustomError(
            RULE_ERROR, f"a vocabulary has at least {_LEAST_TOKENS} and at most {_MOST_TOKENS} tokens"
        )
    return size


def _sized_or_listed(value: Any) -> int | list[int]:
    """One size, or an ascending list of sizes."""
    if not isinstance(value, list):
        return _sized(value)
    sizes = [_sized(each) for each in value]
    if not 1 <= len(sizes) <= _MOST_SIZES:
        raise PydanticCustomError(RULE_ERROR, f"write one size, or a list of 1 to {_MOST_SIZES} sizes")
    if any(one >= next_one for one, next_one in pairwise(sizes)):
        raise PydanticCustomError(RULE_ERROR, f"write each size once, the smallest first: {sorted(set(sizes))}")
    return sizes


VocabularySizes = Annotated[
    int | list[int],
    BeforeValidator(_sized_or_listed),
]
"""Of a tokenizer that is trained: tokens, special ones included. Read as numbers, whatever the form."""
