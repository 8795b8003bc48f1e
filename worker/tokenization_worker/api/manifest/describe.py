"""Words for one mistake in a manifest: where it is (the field's path), what was found, what is expected and what to
write instead. What may hold a secret is never shown.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from typing import Any

from pydantic_core import ErrorDetails

from tokenization_worker.api.types.model import RULE_ERROR, Block
from tokenization_worker.api.types.quantities import nearest_number
from tokenization_worker.api.types.walk import choices_of, field_at, iter_fields, known_names
from tokenization_worker.messages.counts import counted
from tokenization_worker.messages.redact import is_secret_field

_ENV_EXAMPLE = (
    "write a list: `env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: huggingface, key: token}}}]`, where "
    "huggingface is a Secret of the job's namespace"
)
_SHOWN_CHARACTERS = 80
_MOST_PLACES = 2


def describe_error(model: type[Block], error: ErrorDetails) -> str:
    """Return one mistake in words: `path: found X; what is expected, what to write`."""
    loc = tuple(part for part in error["loc"] if part != "[key]")
    path = _path_of(loc)
    if loc[:1] == ("status",):
        return f"{path}: not as the operator writes it: remove status from the manifest"
    found, context, kind = error["input"], error.get("ctx", {}), error["type"]
    if kind == "extra_forbidden":
        if "\u00a0" in str(loc[-1]):
            return f"{path}: a no-break space (U+00A0) is part of the name: write a space"
        owner, _ = field_at(model, loc[:-1])
        names = known_names(owner or model)
        is_slip = bool(difflib.get_close_matches(str(loc[-1]), names, n=1, cutoff=_SLIP))
        elsewhere = [] if is_slip else _paths_of(model, str(loc[-1]))
        if elsewhere and not any(each.rpartition(".")[0] == path.rpartition(".")[0] for each in elsewhere):
            return f"{path}: unknown field here; did you mean {' or '.join(elsewhere)}?"
        return f"{path}: unknown field; {_nearest(str(loc[-1]), names, quote=True)}"
    _, field = field_at(model, loc)
    example = f", for example {show_value(field.examples[0])}" if field is not None and field.examples else ""
    if kind == "missing":
        return f"{path}: missing; add it{example}"
    if kind == RULE_ERROR:
        shown = "" if found is None or not loc or isinstance(found, dict) else f"found {_show_at(loc, found)}; "
        return f"{path}: {shown}{error['msg']}"
    if kind in ("list_type", "model_type") and loc[:2] == ("spec", "env") and len(loc) <= 3:
        return f"{path}: found {_show_at(loc, found)}; {_ENV_EXAMPLE}"
    if kind in ("enum", "literal_error"):
        choices = choices_of(field.annotation) if field is not None else []
        return f"{path}: found {_show_at(loc, found)}; {_nearest(str(found), choices, quote=False)}"
    if kind == "string_type" and isinstance(found, bool | int | float):
        write = "write it in quotes" if _is_hidden(loc) else f'write "{show_value(found)}"'
        return f"{path}: found {_show_at(loc, found)} without quotes; expected text: {write}"
    if kind == "string_type" and isinstance(found, dict) and list(found.values()) == [None] and not _is_hidden(loc):
        text = "{" + str(*found) + "}"
        return f"{path}: found a mapping of names to values; expected text: write it in quotes, '{text}'"
    if kind == "string_unicode":
        shown = kind_of(found) if _is_hidden(loc) else _show_bytes(found)
        return f"{path}: found {shown}, which is not UTF-8; write a name in UTF-8 (a file or folder: rename it with mv)"
    words = _EXPECTED.get(kind)
    expected = words(context) if words is not None else error["msg"]
    if kind in ("int_type", "int_from_float", "int_parsing") and (meant := nearest_number(found)) is not None:
        return f"{path}: found {_show_at(loc, found)}; expected {expected}: write {meant}"
    return f"{path}: found {_show_at(loc, found)}; expected {expected}{example}"


def _path_of(loc: tuple[int | str, ...]) -> str:
    """A field's path as users write it. Of `NAME=value`, written as a field below env, only the name."""
    if _is_hidden(loc):
        loc = tuple(part if isinstance(part, int) else part.partition("=")[0] for part in loc)
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".") or "manifest"


def _is_hidden(loc: tuple[int | str, ...]) -> bool:
    """Whether a value at `loc` is one below env, or may hold one."""
    return loc in ((), ("spec",)) or (loc[0] == "spec" and is_secret_field(str(loc[1])))


def _show_at(loc: tuple[int | str, ...], value: object) -> str:
    """What was found at `loc`; of what may hold a secret, only what kind of value it is."""
    return f"{kind_of(value)} (values are not shown)" if _is_hidden(loc) else show_value(value)


def kind_of(value: object) -> str:
    """What a value of YAML is, in words."""
    if isinstance(value, dict):
        return "a mapping of names to values"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else "text" if isinstance(value, str) else "no value"


def _paths_of(model: type[Block], name: str) -> list[str]:
    """Where a person writes a field of that name, whatever the case and with `_` or without; nothing for a name that
    several blocks have."""
    plain = name.replace("_", "").lower()
    found = [field.path for field in iter_fields(model) if field.path.rpartition(".")[2].lower() == plain]
    written = [path for path in found if path.partition(".")[0] != "status"]
    return written if len(found) <= _MOST_PLACES else []


_SLIP = 0.85
"""So near to a name that belongs here, a word is a slip of it, even where another block has that very name."""

_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda c: "a whole number",
    "int_from_float": lambda c: "a whole number",
    "int_parsing": lambda c: "a whole number",
    "bool_type": lambda c: "true or false",
    "string_type": lambda c: "text",
    "list_type": lambda c: "a list",
    "dict_type": lambda c: "fields (name: value)",
    "model_type": lambda c: "fields (name: value)",
    "greater_than_equal": lambda c: f"at least {c['ge']:,}",
    "less_than_equal": lambda c: f"at most {c['le']:,}",
    "string_too_short": lambda c: f"at least {counted(c['min_length'], 'character')}",
    "string_too_long": lambda c: f"at most {counted(c['max_length'], 'character')}",
    "too_short": lambda c: f"at least {counted(c['min_length'], 'entry', 'entries')}",
    "too_long": lambda c: f"at most {counted(c['max_length'], 'entry', 'entries')}",
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


def show_value(value: object) -> str:
    """A value as it would be written, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:  # a program's number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _show_bytes(value: object) -> str:
    """A name that is not UTF-8: its bytes, as the file system has them."""
    try:
        return repr(os.fsencode(value) if isinstance(value, str) else value)[: _SHOWN_CHARACTERS + 4]
    except UnicodeEncodeError:
        return ascii(value)[:_SHOWN_CHARACTERS]
