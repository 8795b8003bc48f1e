"""The base of all manifest models, and rules that Python and the API server check alike.

A `Rule` holds one sentence for people, the CEL expression that the API server evaluates and the Python
predicate that the command line evaluates, side by side, so that neither can be forgotten. A rule over
one value annotates its type (`Annotated[str, Rule(...)]`); a rule over several fields stands in `rules`
of their block. Every broken rule of a manifest is reported, not only the first. What a message looks
like is `load.py`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

RULE_ERROR = "manifest_rule"
STORED: Final[Mapping[str, bool]] = {"is_stored": True}
"""The context in which an object is read that the API server has accepted, perhaps under an earlier version's rules."""
FORBIDDEN: Final = "FieldValueForbidden"
"""The API server's reason for a field that may not be set: its words show no value."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement, in words, in CEL and in Python.

    `message` says what to write instead. `field` names the field of a block that is at fault (its
    manifest name, dotted). `cel` is None where the API server cannot afford or express the check;
    `holds` is None where only the API server can see it (a transition needs the old object).

    The message begins with what was found where the field's value does not say it, such as one key of a map: `found` is
    that text in CEL, `shows` the same in Python. `reason` is the API server's, where it is not FieldValueInvalid. A
    rule that `is_for_new` values only is not checked on a stored object: it came after objects that break it, and what
    they hold is passed on to Kubernetes as before.
    """

    message: str
    cel: str | None
    holds: Callable[[Any], bool] | None
    field: str = ""
    reason: str = ""
    found: str = ""
    shows: Callable[[Any], str] | None = None
    is_for_new: bool = False

    def as_validation(self) -> dict[str, str]:
        """Return the entry of `x-kubernetes-validations`; only for rules with `cel`."""
        assert self.cel is not None
        entry = {"rule": self.cel, "message": self.message}
        if self.found:
            entry["messageExpression"] = f"{self.found} + {json.dumps('; ' + self.message)}"
        if self.reason:
            entry["reason"] = self.reason
        if self.field:
            entry["fieldPath"] = f".{self.field}"
        return entry

    def is_broken(self, value: Any, context: Any) -> bool:
        """Return whether `value` breaks the rule where it is read in `context`."""
        if self.holds is None or (self.is_for_new and context is STORED):
            return False
        return not self.holds(value)

    def words(self, value: Any) -> str:
        """Return the message for `value`, which breaks the rule."""
        return self.message if self.shows is None else f"{self.shows(value)}; {self.message}"

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if self.is_broken(value, info.context):
            raise PydanticCustomError(RULE_ERROR, _literal(self.words(value)))
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        add_validations(found, (self,))
        return found


class Block(BaseModel):
    """A block of an object: camelCase outside, snake_case inside, unknown fields refused. Of its `rules`, Python checks
    those of a `SpecBlock` alone.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    help_command: ClassVar[str] = "tokjob run --help-all"
    """Shows every field of a manifest of this kind."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        add_validations(handler.resolve_ref_schema(found), cls.rules)
        return found

    def to_manifest(self) -> dict[str, Any]:
        """Return the block as it was written: camelCase, without what is only a default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


class SpecBlock(Block):
    """A block that people write: null means absent, and its rules are checked."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        broken = [rule for rule in self.rules if rule.is_broken(self, info.context)]
        if broken:
            raise ValidationError.from_exception_data(type(self).__name__, [_detail(self, r) for r in broken])
        return self


def add_validations(schema: JsonSchemaValue, rules: tuple[Rule, ...]) -> None:
    """Append the CEL form of `rules` to `schema`, in order."""
    entries = [rule.as_validation() for rule in rules if rule.cel is not None]
    if entries:
        schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), *entries]


def _detail(block: Block, rule: Rule) -> InitErrorDetails:
    path = tuple(rule.field.split(".")) if rule.field else ()
    found: Any = block.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return InitErrorDetails(type=PydanticCustomError(RULE_ERROR, _literal(rule.words(block))), loc=path, input=found)


def _literal(message: str) -> Any:
    # pydantic types its templates as LiteralString and fills in {names} from a context, of which ours have none.
    return message
