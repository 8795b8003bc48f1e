"""The value types that several blocks share, each with its bounds, its words and its CRD schema.

Invariant: a value of one of these types is kept as written; `quantities.py` turns it into a number. Lengths
are bounded because the API server estimates the cost of every CEL rule from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from tokenization_worker.api.model import RULE_ERROR, Rule
from tokenization_worker.api.quantities import LIMIT_PATTERN, QUANTITY_PATTERN, Limit, parse_quantity


def _kept_as_written(parse: Callable[[Any], object], message: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        try:
            parse(value)
        except ValueError:
            raise PydanticCustomError(RULE_ERROR, message) from None
        return value

    return BeforeValidator(check)


def _int_or_string(pattern: str, minimum: int, message: str) -> WithJsonSchema:
    rule = Rule(message, cel=f"type(self) == int ? self >= {minimum} : self.matches(r'{pattern}')", holds=None)
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


QUANTITY_MESSAGE = "write a number of bytes above 0, such as 268435456, or with a unit Ki, Mi, Gi, Ti: 256Mi"
LIMIT_MESSAGE = "write a count such as 10, or a percentage such as 0.1%"

Quantity = Annotated[
    int | str,
    TypeWords("quantity"),
    _kept_as_written(parse_quantity, QUANTITY_MESSAGE),
    _int_or_string(QUANTITY_PATTERN, 1, QUANTITY_MESSAGE),
]
LimitValue = Annotated[
    int | str,
    TypeWords("count or percentage"),
    _kept_as_written(Limit.parse, LIMIT_MESSAGE),
    _int_or_string(LIMIT_PATTERN, 0, LIMIT_MESSAGE),
]

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Flag = Annotated[bool, Strict()]
MAX_INT32 = 2**31 - 1
Count = Annotated[int, Strict(), Field(ge=0, le=MAX_INT32)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=MAX_INT32)]
BigCount = Annotated[int, Strict(), Field(ge=0, le=2**53)]
PositiveBigCount = Annotated[int, Strict(), Field(ge=1, le=2**53)]
