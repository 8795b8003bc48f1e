"""Turn YAML into a checked manifest, or into one error that lists every mistake in it.

Each line of the error says where (the field's path), what was found, what is expected and what to write
instead. Scalars mean what they mean to the API server: a date stays text, `12:30` stays text, and a key
that stands twice is refused, not overwritten. Which values are valid is decided by the models.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tokenization_worker.api.model import RULE_ERROR, Block
from tokenization_worker.api.walk import choices_of, field_at, known_names
from tokenization_worker.errors import SpecError

B = TypeVar("B", bound=Block)

_SHOWN_CHARACTERS = 80
_NEXT_STEP = "correct this, then check it with: tokjob validate FILE (every field: docs/job-reference.md)"


def load_manifest(model: type[B], path_or_text: str | Path) -> B:
    """Read one manifest from a file or from text; see `is_text` for how they are told apart.

    Raises SpecError: SpecNotFound for a file that cannot be read, SpecInvalid with every mistake otherwise.
    """
    if isinstance(path_or_text, str) and is_text(path_or_text):
        return validate_manifest(model, parse_yaml(path_or_text, origin="the manifest"), origin="the manifest")
    path = Path(path_or_text)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise SpecError(
            "SpecNotFound",
            f"{path}: {error.strerror or error}",
            next_step="give the path of a manifest (YAML)",
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(
            "SpecInvalid", f"{path}: not UTF-8 at byte {error.start}", next_step="save the manifest as UTF-8"
        ) from error
    return validate_manifest(model, parse_yaml(text, origin=str(path)), origin=str(path))


def is_text(path_or_text: str) -> bool:
    """Return whether a string is a manifest and not the path of one: it has a line break, or `: ` in it."""
    return "\n" in path_or_text or ": " in path_or_text


def parse_yaml(text: str, *, origin: str) -> dict[str, Any]:
    """Return the one mapping that `text` holds; SpecError with line and column where it is no YAML, or
    not one mapping.
    """
    documents = [item for item in _load(text, origin, _NEXT_STEP) if item is not None]
    if len(documents) != 1:
        raise SpecError(
            "SpecInvalid",
            f"{origin}: found {len(documents)} YAML documents, expected one",
            next_step="write one TokenizationJob into one file",
        )
    if not isinstance(documents[0], dict):
        raise SpecError(
            "SpecInvalid",
            f"{origin}: found {_show(documents[0])}, expected the fields of a manifest: "
            "apiVersion, kind, metadata, spec",
            next_step=_NEXT_STEP,
        )
    return documents[0]


def parse_value(text: str, *, origin: str) -> Any:
    """Return the value that `text` would be after a field's name in a manifest; SpecError where it is no YAML."""
    next_step = "write the value as in a manifest, and quote it for the shell; a list is [a, b]"
    values = _load(text, origin, next_step)
    return values[0] if values else None


def _load(text: str, origin: str, next_step: str) -> list[Any]:
    try:
        return list(yaml.load_all(text, _Loader))  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise SpecError("SpecInvalid", f"{origin}: {place}not YAML: {words}", next_step=next_step) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise SpecError("SpecInvalid", f"{origin}: not YAML: {error}", next_step=next_step) from error


def validate_manifest(model: type[B], manifest: dict[str, Any], *, origin: str) -> B:
    """Return `manifest` as `model`; SpecError(SpecInvalid) that lists every mistake, one a line, in the
    order found.
    """
    try:
        return model.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        lines = [describe_error(model, detail) for detail in error.errors(include_url=False)]
        mistakes = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        message = f"{origin}: {mistakes}" + "".join(f"\n  {line}" for line in lines)
        raise SpecError("SpecInvalid", message, next_step=_NEXT_STEP) from error


def describe_error(model: type[Block], error: ErrorDetails) -> str:
    """Return one mistake in words: `path: found X; what is expected, what to write`."""
    loc = tuple(part for part in error["loc"] if part != "[key]")
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".") or "manifest"
    found, context, kind = error["input"], error.get("ctx", {}), error["type"]
    if kind == "extra_forbidden":
        owner, _ = field_at(model, loc[:-1])
        return f"{path}: unknown field; {_nearest(str(loc[-1]), known_names(owner or model), quote=True)}"
    _, field = field_at(model, loc)
    example = f", for example {_show(field.examples[0])}" if field is not None and field.examples else ""
    if kind == "missing":
        return f"{path}: missing; add it{example}"
    if kind == RULE_ERROR:
        shown = "" if found is None or not loc or isinstance(found, dict) else f"found {_show(found)}; "
        return f"{path}: {shown}{error['msg']}"
    if kind in ("enum", "literal_error"):
        choices = choices_of(field.annotation) if field is not None else []
        return f"{path}: found {_show(found)}; {_nearest(str(found), choices, quote=False)}"
    if kind == "string_type" and isinstance(found, bool | int | float):
        return f'{path}: found {_show(found)} without quotes; expected text: write "{_show(found)}"'
    words = _EXPECTED.get(kind)
    expected = words(context) if words is not None else error["msg"]
    return f"{path}: found {_show(found)}; expected {expected}{example}"


_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda c: "a whole number",
    "int_from_float": lambda c: "a whole number",
    "int_parsing": lambda c: "a whole number",
    "bool_type": lambda c: "true or false",
    "string_type": lambda c: "text",
    "list_type": lambda c: "a list",
    "dict_type": lambda c: "fields (name: value)",
    "model_type": lambda c: "fields (name: value)",
    "greater_than_equal": lambda c: f"at least {c['ge']}",
    "less_than_equal": lambda c: f"at most {c['le']}",
    "string_too_short": lambda c: f"at least {c['min_length']} character(s)",
    "string_too_long": lambda c: f"at most {c['max_length']} characters",
    "too_short": lambda c: f"at least {c['min_length']} entry",
    "too_long": lambda c: f"at most {c['max_length']} entries",
}


def _nearest(word: str, choices: list[str], *, quote: bool) -> str:
    if not quote:
        expected = f"expected {choices[0]}" if len(choices) == 1 else f"expected one of {', '.join(choices)}"
    else:
        expected = f"known here: {', '.join(choices)}"
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if not near:
        return expected
    guess = f'did you mean "{by_lower[near[0]]}"?'
    return guess if quote else f"{expected}; {guess}"


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class _Loader(yaml.SafeLoader):
    """YAML as the API server reads it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f'the field "{key.value}" stands twice', key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_WHOLE_NUMBER = re.compile(r"^[-+]?(0|[1-9][0-9_]*|0[0-7]+|0x[0-9a-fA-F]+|0b[01]+)$")
_REPLACED_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _WHOLE_NUMBER, list("-+0123456789"))
