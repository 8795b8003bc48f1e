"""The reference page of the job manifest, generated from the models.

`docs/job-reference.md` is the output of `generate_reference`, committed; a test compares them. What a
field means is written once, at the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any, get_args, get_origin

from tokenization_worker.api.job import DATA_FIELDS, OPERATOR_FIELDS, JobSpec
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

`source`, `documents`, `tokenizer` and `output` are **the data**: with the contents of the source they fix
every output byte. You may change them freely until the job is planned. After that they change only together
with a new `rerunToken` and a new `output.uri` (or one that holds `{rerunToken}`). All other fields say how to
execute a run: you may change them at any time, and they apply to the next attempt.

| value | meaning |
|---|---|
| `null` | the field is absent |
| an unknown field | refused |
| a quantity: `64Mi` | a whole number, alone or with Ki, Mi, Gi, Ti (powers of 1024) or k, M, G, T (of 1000) |
| a relative path | starts at the folder where you start the command |

Only the operator uses the following fields. `tokjob run` ignores them, and warns if one is not at its default:
OPERATOR_FIELDS.
""".replace(
    "OPERATOR_FIELDS", fill(", ".join(f"`{JobSpec.model_fields[name].alias}`" for name in OPERATOR_FIELDS), 110)
)
_PLAIN_TYPES = {str: "text", int: "whole number", bool: "true or false"}


def generate_reference() -> str:
    """Return the page as Markdown."""
    entries = list(iter_fields(JobSpec, "spec"))
    parts = [_INTRODUCTION]
    for title, path, model in _sections(entries):
        rows = [entry for entry in entries if entry.path.rsplit(".", 1)[0] == path]
        if not rows:
            continue
        parts.append(f"\n## {title}\n\n| field | type | default | data | meaning |\n|---|---|---|---|---|\n")
        parts.extend(_row(entry) for entry in rows)
        rules = [rule.message for rule in model.rules]
        if rules:
            parts.append("\nRules:\n\n" + "".join(f"- {_escape(rule)}\n" for rule in rules))
    return "".join(parts)


def _sections(entries: list[FieldEntry]) -> Iterator[tuple[str, str, type[Block]]]:
    yield "spec", "spec", JobSpec
    for entry in entries:
        if entry.block is not None:
            path = f"{entry.path}[]" if is_list_type(entry.info.annotation) else entry.path
            yield path, path, entry.block


def _row(entry: FieldEntry) -> str:
    examples = entry.info.examples
    meaning = _escape(entry.info.description or "")
    if examples:
        meaning += f" Example: {_code(examples[0])}"
    data = "yes" if is_data_field(entry.path) else ""
    name = entry.path.rsplit(".", 1)[-1]
    special = [marker.words for marker in entry.info.metadata if isinstance(marker, TypeWords)]
    kind = special[0] if special else _type_words(entry.info.annotation)
    return f"| `{name}` | {kind} | {_default(entry)} | {data} | {meaning} |\n"


def is_data_field(path: str) -> bool:
    """Return whether the field at `path` (from `spec`) is part of the data."""
    return path.removeprefix("spec.").split(".")[0].removesuffix("[]") in DATA_FIELDS


def _type_words(annotation: Any) -> str:
    bare = strip_annotation(annotation)
    choices = choices_of(annotation)
    if choices:
        words = ", ".join(f"`{choice}`" for choice in choices)
        return f"list of {words}" if is_list_type(annotation) else words
    block = block_type(annotation)
    if get_origin(bare) is list:
        return "list of blocks, below" if block else f"list of {_type_words(get_args(bare)[0])}"
    if block is not None:
        return "block, below"
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
