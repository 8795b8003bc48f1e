"""Parses YAML as the API server does, from any text.

Scalars mean what they mean to the API server: a date stays text, `12:30` stays text, and a key that stands twice is
refused, not overwritten. Time and memory are bounded: what is larger than any manifest, also because of its aliases, is
refused before values are made of it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from tokenization_worker.api.manifest.describe import show_value
from tokenization_worker.api.manifest.manifest_file import MOST_BYTES
from tokenization_worker.api.types.quantities import MAX_INT64
from tokenization_worker.errors import SpecError

_NODE_BYTES = 10
"""What a value counts besides its text, so that very many short ones are bounded, too."""

_MOST_DEPTH = 100
"""Blocks within blocks; the C parser makes values of them by recursion, and has no other end than the stack's."""


def check_again(help_command: str) -> str:
    """What to do about a mistake in a manifest whose fields that command shows."""
    return f"correct this, then check it with: tokjob validate FILE (every field: {help_command})"


NEXT_STEP = check_again("tokjob run --help-all")


def parse_yaml(text: str, *, origin: str) -> dict[str, Any]:
    """Return the one mapping that `text` holds; SpecError with line and column where it is no YAML, or
    not one mapping.
    """
    documents = [item for item in _load(text, origin, NEXT_STEP) if item is not None]
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
            f"{origin}: found {show_value(documents[0])}, expected the fields of a manifest: "
            "apiVersion, kind, metadata, spec",
            next_step=NEXT_STEP,
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
