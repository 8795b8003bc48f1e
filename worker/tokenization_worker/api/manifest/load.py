"""Turn YAML into a checked manifest, or into one error that lists every mistake in it.

Each line of the error says where (the field's path), what was found, what is expected and what to write
instead. Scalars mean what they mean to the API server: a date stays text, `12:30` stays text, and a key
that stands twice is refused, not overwritten. Which values are valid is decided by the models.

Time and memory are bounded: what is larger than any manifest, also because of its aliases, is refused before values
are made of it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tokenization_worker.api.manifest.manifest_file import MOST_BYTES, read_manifest_file
from tokenization_worker.api.types.model import RULE_ERROR, STORED, Block
from tokenization_worker.api.types.quantities import MAX_INT64, nearest_number
from tokenization_worker.api.types.walk import choices_of, field_at, iter_fields, known_names
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted
from tokenization_worker.messages.redact import is_secret_field

B = TypeVar("B", bound=Block)

_NODE_BYTES = 10
"""What a value counts besides its text, so that very many short ones are bounded, too."""

_MOST_DEPTH = 100
"""Blocks within blocks; the C parser makes values of them by recursion, and has no other end than the stack's."""
_NEXT_FLAG = "correct the flag (every field: tokjob run --help-all)"
_NEXT_ARGUMENT = "correct the arguments of TokenizationJob.of (every field: tokjob run --help-all)"
COMMAND_LINE = "the command line"
"""The origin of a job without a manifest."""
KEYWORDS = "TokenizationJob.of"
"""The origin of a job from a program's keywords."""

_ENV_EXAMPLE = (
    "write a list: `env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: huggingface, key: token}}}]`, where "
    "huggingface is a Secret of the job's namespace"
)
_SHOWN_CHARACTERS = 80
_MOST_PLACES = 2
_NEXT_STEP = "correct this, then check it with: tokjob validate FILE (every field: tokjob run --help-all)"


def load_manifest(model: type[B], path_or_text: str | Path) -> B:
    """Read one manifest from a file or from text; see `is_text` for how they are told apart.

    Raises SpecError: SpecNotFound for a file that cannot be read, SpecInvalid with every mistake otherwise.
    """
    if not isinstance(path_or_text, str | os.PathLike):
        raise SpecError(
            "SpecInvalid",
            f"from_yaml takes the path of a manifest or its text, found {type(path_or_text).__name__}",
            next_step="give a path or a text; of a dictionary TokenizationJob.from_object makes a job",
        )
    if isinstance(path_or_text, str) and is_text(path_or_text):
        return validate_manifest(model, parse_yaml(path_or_text, origin="the manifest"), origin="the manifest")
    path = Path(path_or_text)
    text = read_manifest_file(path)
    return validate_manifest(model, parse_yaml(text, origin=str(path)), origin=str(path))


def is_text(path_or_text: str) -> bool:
    """Return whether a string is a manifest and not the path of one: it has a line break, or `: ` in it, or nothing."""
    return "\n" in path_or_text or ": " in path_or_text or not path_or_text.strip()


def parse_yaml(text: str, *, origin: str) -> dict[str, Any]:
    """Return the one mapping that `text` holds; SpecError with line and column where it is no YAML, or
    not one mapping.
    """
    documents = [item for item in _load(text, origin, _NEXT_STEP) if item is not None]
    if not documents:
        raise SpecError(
            "SpecInvalid",
            f"{origin}: the manifest is empty",
            next_step="write a TokenizationJob into it: apiVersion, kind, metadata, spec; tokjob run --source ... "
            "--tokenizer ... --output ... --print-manifest prints one",
        )
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
        if len(text) > MOST_BYTES or _measure(text) > MOST_BYTES:
            raise _too_large(origin, next_step)
        return list(yaml.load_all(text, _Loader))  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        words = ", ".join(part for part in (error.context, error.problem) if part) + _hint(text, error, mark)
        raise SpecError(
            "SpecInvalid",
            f"{origin}: {place}{'' if isinstance(error, _OurRule) else 'not YAML: '}{words}",
            next_step=next_step,
        ) from error
    except (yaml.YAMLError, RecursionError, UnicodeEncodeError) as error:
        raise SpecError("SpecInvalid", f"{origin}: not YAML: {error}", next_step=next_step) from error


def _hint(text: str, error: yaml.MarkedYAMLError, mark: Any) -> str:
    """What to write instead, behind the parser's words for the mistakes that they do not explain."""
    problem = str(error.problem)
    if "unknown escape character" in problem:
        return "; in double quotes a backslash begins an escape: use single quotes, 'C:\\data'"
    if "cannot start any token" in problem and mark is not None:
        line = [*text.splitlines(), ""][mark.line]
        is_tab = "\t" in line[: mark.column + 1]
        return "; indent with spaces, not with a tab" if is_tab else "; put a text with this character in quotes"
    if "mapping values are not allowed" in problem:
        return "; put a text with a colon and a space in quotes, and each field on a line of its own"
    if "alias" in f"{error.context} {problem}":
        return "; put a text that begins with * in quotes: '*.jsonl'"
    if "flow mapping" in str(error.context) or "flow sequence" in str(error.context):
        return "; put a text with {, }, [ or ] in quotes: 'out/{rerunToken}'"
    if "did not find expected key" in problem or "expected <block end>" in problem:
        return "; indent all fields of a block by the same number of spaces" + _no_break_space(text)
    if "could not determine a constructor" in problem:
        return "; a manifest has plain values only: leave the tag (!...) out"
    return ""


def _no_break_space(text: str) -> str:
    """Where the first line is that a no-break space indents: it looks like a space, and is none."""
    for number, line in enumerate(text.splitlines(), 1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\u00a0" in indent:
            return f"; line {number}, column {indent.index(chr(0xA0)) + 1} is a no-break space, and no space"
    return ""


def _too_large(origin: str, next_step: str) -> SpecError:
    return SpecError(
        "SpecInvalid",
        f"{origin}: more than {MOST_BYTES >> 20} MiB, counting what aliases (*name) stand for; a manifest has a few KB",
        next_step=f"is this the manifest, and not the data? Name files by folders and globs. {next_step}",
    )


def _measure(text: str) -> int:
    """About how many bytes `text` has with its aliases written out; stops counting beyond what is allowed.

    Raises `yaml.YAMLError` for what is no YAML, is nested too deeply, or holds itself.
    """
    sizes: dict[str | None, int] = {}  # of what anchors name
    open_blocks: list[tuple[str | None, int]] = []  # the anchor of each, and the size before it
    size = 0
    for event in yaml.parse(text, _Base):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_blocks):
                raise _refused(f"*{event.anchor} holds itself", event.start_mark)
            size += sizes.get(event.anchor, 0) + _NODE_BYTES
        elif isinstance(event, yaml.ScalarEvent):
            own = _NODE_BYTES + len(event.value)
            size += own
            if event.anchor is not None:
                sizes[event.anchor] = own
        elif isinstance(event, yaml.CollectionStartEvent):
            open_blocks.append((event.anchor, size))
            size += _NODE_BYTES
            if len(open_blocks) > _MOST_DEPTH:
                raise _refused(f"more than {_MOST_DEPTH} blocks within each other", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_blocks.pop()
            if anchor is not None:
                sizes[anchor] = size - before
        if size > MOST_BYTES:
            break
    return size


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    """`mark`: one of two classes that have lines and columns."""
    return yaml.composer.ComposerError(None, None, problem, mark)


def validate_manifest(model: type[B], manifest: dict[str, Any], *, origin: str, is_stored: bool = False) -> B:
    """Return `manifest` as `model`; SpecError(SpecInvalid) that lists every mistake, one a line, in the
    order found. `is_stored`: the API server has accepted it, perhaps before some rules were there.
    """
    try:
        return model.model_validate(manifest, by_alias=True, by_name=False, context=STORED if is_stored else None)
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = list(dict.fromkeys(describe_error(model, detail) for detail in details))
        mistakes = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        message = f"{origin}: {mistakes}" + "".join(f"\n  {line}" for line in lines)
        step = {COMMAND_LINE: _NEXT_FLAG, KEYWORDS: _NEXT_ARGUMENT}.get(origin, _NEXT_STEP)
        raise SpecError("SpecInvalid", message, next_step=step) from error


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
    example = f", for example {_show(field.examples[0])}" if field is not None and field.examples else ""
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
        write = "write it in quotes" if _is_hidden(loc) else f'write "{_show(found)}"'
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
    return f"{kind_of(value)} (values are not shown)" if _is_hidden(loc) else _show(value)


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


def _show(value: object) -> str:
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


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _OurRule(yaml.constructor.ConstructorError):
    """What is YAML, and refused here."""


_OTHER_BASE = re.compile(r"[-+]?(0[0-7]+|0x[0-9a-fA-F]+|0b[01]+)")


_MOST_DIGITS = 64
"""Of a number: far more than a field takes, and far less than Python refuses to convert (4,300)."""


def _require_short(node: yaml.ScalarNode) -> None:
    """Refuse a number of more characters than any field takes, before it is converted."""
    size = len(node.value)
    if size > _MOST_DIGITS:
        problem = f"a number of {size:,} characters, expected at most {MAX_INT64:,}; put text in quotes"
        raise _OurRule(None, None, problem, node.start_mark)


class _Loader(_Base):  # type: ignore[misc]  # one of two classes
    """YAML as the API server reads it."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Whole numbers; one that YAML does not read in base 10 is refused with both readings."""
        _require_short(node)
        number: int = super().construct_yaml_int(node)
        if _OTHER_BASE.fullmatch(node.value) and number:
            digits = re.sub(r"^([-+]?)(0[xb]|0+)", r"\1", node.value)
            decimal = f"{digits}, or " if digits.lstrip("-+").isdecimal() and int(digits) != number else ""
            problem = f"the number {node.value} would mean {number}: write {decimal}{number}"
            raise _OurRule(None, None, problem, node.start_mark)
        return number

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Numbers with a point; the parts of one in base 60 (`1:30.5`) are whole numbers."""
        _require_short(node)
        number: float = super().construct_yaml_float(node)
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise _OurRule(None, None, f'the field "{key.value}" stands twice', key.start_mark)
            if isinstance(key.value, str):
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


_WHOLE_NUMBER = re.compile(r"^[-+]?(0|[1-9][0-9_]*|0[0-7]+|0x[0-9a-fA-F]+|0b[01]+)$")
_REPLACED_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _WHOLE_NUMBER, list("-+0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
