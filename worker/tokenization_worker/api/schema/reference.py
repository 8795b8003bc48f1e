"""The reference page of the job manifest, generated from the models.

`docs/job-reference.md` is the output of `generate_reference`, committed; a test compares them. What a
field means is written once, at the field.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any, get_args, get_origin

from tokenization_worker.api.job import OPERATOR_FIELDS, JobSpec
from tokenization_worker.api.schema.openapi import drop_nulls, write_example
from tokenization_worker.api.types.fields import TypeWords
from tokenization_worker.api.types.model import Block
from tokenization_worker.api.types.walk import (
    FieldEntry,
    block_type,
    choices_of,
    is_list_type,
    iter_fields,
    strip_annotation,
)

_INTRODUCTION = """\
<!-- Generated from the models; change the models, not this page. -->

# Job reference

Every field of a `TokenizationJob`. The smallest manifest:

```yaml
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: fineweb-edu}   # at most 36 characters: lower-case letters, digits and -
spec:
  source: {uris: ["gs://corpus/fineweb-edu/*.parquet"]}
  tokenizer: {name: cl100k_base}
  output: {uri: "gs://tokens/fineweb-edu"}
```

`source`, `documents`, `tokenizer` and `output` are **the data**: with the contents of the source they decide
every output byte. Once the job is planned, you may change them only together with a new `rerunToken` and a new
`output.uri` (or one with `{rerunToken}`). You may change all other fields, and `tokenizer.fingerprint`, at any
time; a change applies to the next attempt, of `suspend`, `ttlSecondsAfterFinished` and the
[limits](operations.md#phases) at once.

| value | meaning |
|---|---|
| `null` | the field is absent |
| an unknown field | refused |
| a quantity: `64Mi` | a whole number, alone or with Ki, Mi, Gi, Ti (powers of 1024) or k, M, G, T (of 1000) |
| a relative path | starts at the folder where you start the command |
| `list[].field` | a field of each item of a list |

Only the operator uses these fields. `tokjob run` warns of them if one is not at its default:
OPERATOR_FIELDS.
""".replace(
    "OPERATOR_FIELDS", fill(", ".join(f"`{JobSpec.model_fields[name].alias}`" for name in OPERATOR_FIELDS), 110)
)
_PASSED_ON = dict[str, Any]
_PLAIN_TYPES = {str: "text", int: "whole number", bool: "true or false"}


def generate_reference() -> str:
    """Return the page as Markdown: the fields of `spec`, then a section for each of its blocks."""
    fields = [entry for entry in iter_fields(JobSpec) if "." not in entry.path]
    rows = [_row(entry, _type_words(entry.info.annotation)) for entry in fields]
    parts = [_INTRODUCTION, _section("spec", rows, [rule.message for rule in JobSpec.rules])]
    described: dict[type[Block], str] = {}
    parts += [_describe(entry, entry.block, described) for entry in fields if entry.block is not None]
    return "".join(parts)


def _describe(entry: FieldEntry, block: type[Block], described: dict[type[Block], str]) -> str:
    """Return the section of a block of `spec`, with the fields of all blocks inside of it.

    `described` maps each block of the page to its place. A block with a place already gets a row that names it. A
    block in an item of a list, which is Kubernetes' own, gets one row that names its fields.
    """
    title = _item_path(entry)
    in_list = title.endswith("[]")
    rows, rules = [], [rule.message for rule in block.rules]
    skipped: tuple[str, ...] = ()
    for field in iter_fields(block, in_list=in_list):
        inner = _item_path(field)
        place = described.setdefault(field.block, f"{title}.{inner}") if field.block is not None else ""
        if field.block is not None and place == f"{title}.{inner}":
            rules += [f"{inner}: {rule.message}" for rule in field.block.rules]
        if field.path.startswith(skipped):
            continue
        kind, names = _type_words(field.info.annotation), ""
        if field.block is not None and field.in_list:
            names, skipped = _name_fields(field.block), (*skipped, f"{inner}.")
        elif place and place != f"{title}.{inner}":
            kind, skipped = f"{kind}, as `{place}`", (*skipped, f"{inner}.")
        rows.append(_row(field, kind, names))
    return _section(f"spec.{title}", rows, rules)


def _name_fields(block: type[Block]) -> str:
    """Return the fields of a block that hold values, such as "`name` (required), `items[].key`"."""
    fields = [entry for entry in iter_fields(block) if entry.block is None]
    return ", ".join(f"`{entry.path}`" + (" (required)" if entry.info.is_required() else "") for entry in fields)


def _section(title: str, rows: list[str], rules: list[str]) -> str:
    text = f"\n## {title}\n\n| field | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)
    return text + (
        "\nRefused, with these messages:\n\n" + "".join(f"- {_escape(rule)}\n" for rule in rules) if rules else ""
    )


def _item_path(entry: FieldEntry) -> str:
    return f"{entry.path}[]" if is_list_type(entry.info.annotation) else entry.path


def _row(entry: FieldEntry, kind: str, names: str = "") -> str:
    meaning = _escape(entry.info.description or "")
    if names:
        meaning += f" Fields: {names}."
    elif _needs_example(entry):
        meaning += f" Example: {_code((entry.info.examples or [None])[0])}"
    special = [marker.words for marker in entry.info.metadata if isinstance(marker, TypeWords)]
    return f"| `{entry.path}` | {special[0] if special else kind} | {_default(entry)} | {meaning} |\n"


def _needs_example(entry: FieldEntry) -> bool:
    """Return whether neither the type, the default nor the rows of a block's own fields show what to write."""
    says_all = bool(choices_of(entry.info.annotation)) or strip_annotation(entry.info.annotation) is bool
    is_block = entry.block is not None and not is_list_type(entry.info.annotation)
    has_default = not entry.info.is_required() and bool(entry.info.default)
    return bool(entry.info.examples) and not (says_all or has_default or is_block)


def _type_words(annotation: Any) -> str:
    bare = strip_annotation(annotation)
    choices = choices_of(annotation)
    if choices:
        words = ", ".join(f"`{choice}`" for choice in choices)
        return f"list of {words}" if is_list_type(annotation) else words
    block = block_type(annotation)
    if get_origin(bare) is list:
        item = strip_annotation(get_args(bare)[0])
        many = "blocks" if block else "Kubernetes objects" if item == _PASSED_ON else _type_words(item)
        return f"list of {many}"
    if block is not None:
        return "block"
    if bare == _PASSED_ON:
        return "Kubernetes object"
    if get_origin(bare) is dict:
        return f"map of text to {_type_words(get_args(bare)[1])}"
    return _PLAIN_TYPES.get(bare, "whole number or text")


def _default(entry: FieldEntry) -> str:
    if entry.info.is_required():
        return "required"
    default = entry.info.default
    if isinstance(default, Block):
        return "see below"
    if isinstance(default, list):
        default = [item.to_manifest() if isinstance(item, Block) else item for item in default]
    return "" if default is None else _code(drop_nulls(default))


def _code(value: object) -> str:
    text = write_example(value)
    fence = "``" if "`" in text else "`"
    return fence + text.replace("|", "\\|") + fence


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("_", "\\_")
