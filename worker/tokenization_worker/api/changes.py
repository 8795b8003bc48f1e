"""Describes in which fields two jobs for one output differ, as their users wrote them.

Keys are digests of what fixes the bytes: a fingerprint, a delimiter's id, a resolved dtype. A message names what a
person can put back: `tokenizer.name: the job says gpt2, the output has cl100k_base`. A field is named only where its
resolved value differs, so that `gpt-4` in place of `cl100k_base`, or `64Mi` in place of `67108864`, is no difference.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tokenization_worker.api.job import DATA_FIELDS, TokenizationJob
from tokenization_worker.api.keys import ASSERTED, FROZEN_ATTEMPT_DEFAULTS, FROZEN_DEFAULTS, flatten

_ID, _POSITION = "tokenizer.delimiter.id", "tokenizer.delimiter.position"

_RESOLVED = {
    "tokenizer.name": "tokenizer.fingerprint",
    "tokenizer.uri": "tokenizer.fingerprint",
    "tokenizer.pattern": "tokenizer.fingerprint",
    "tokenizer.specialTokens": "tokenizer.fingerprint",
    "tokenizer.delimiter.token": _ID,
    "output.sequence.pad.token": "output.sequence.pad",
    "output.sequence.pad.id": "output.sequence.pad",
}
"""Fields that a key holds under another path."""

_DELIMITER = ("tokenizer.delimiter.begin", "tokenizer.delimiter.end")
"""Fields that a key holds under their own paths where both are there, and as the delimiter's id where one is."""

_ROWS = ("output.sequence.", "output.shards.")
"""What rows have, and tokens without rows have not."""

_WRITERS = "output.writers."
"""What formats have whose bytes a library decides."""

_PAD = "output.sequence.pad"

_PLACES = ("source.uris", "output.uri")
"""Where the data is says nothing of what it is."""

_DEFAULTS = FROZEN_DEFAULTS | {"documents.maxBytes": FROZEN_ATTEMPT_DEFAULTS["documents.maxBytes"]}


def asked_fields(job: TokenizationJob) -> dict[str, object]:
    """The data fields by dotted path, as written; defaults, places and what is asserted are left out."""
    flat: dict[str, object] = {}
    spec = job.to_manifest()["spec"]
    for name in DATA_FIELDS:
        if name in spec:
            flatten(name, spec[name], flat)
    groups = flat.get("source.groups")
    if isinstance(groups, list):
        flat["source.groups"] = [{key: group[key] for key in group if key != "uris"} for group in groups]
    return {path: value for path, value in flat.items() if path not in (*_PLACES, ASSERTED)}


def describe_changes(
    was: dict[str, Any], now: dict[str, Any], was_asked: dict[str, object], now_asked: dict[str, object]
) -> list[str]:
    """Each field that changed, as `path: the job says value, the output has value`.

    `was` and `now` are canonical data; `was_asked` is empty where an earlier version wrote the plan or index.
    """
    old, new = _flat(was), _flat(now)
    changed = {path for path in {*old, *new} if old.get(path) != new.get(path)}
    paths = [*dict.fromkeys([*_DEFAULTS, *now_asked, *was_asked])]
    if ("output.sequence.length" in old) != ("output.sequence.length" in new):  # the other has nothing to compare
        paths = [path for path in paths if not path.startswith(_ROWS) or path == "output.sequence.length"]
    asked_paths = [
        path
        for path in paths
        if _resolved(path, changed) in changed and _value(path, was_asked) != _value(path, now_asked)
    ]
    explained = {_resolved(path, changed) for path in asked_paths}
    if not was_asked:
        asked_paths, explained = [], set()
    lines = [_describe_field(path, _shown(path, now_asked), _shown(path, was_asked)) for path in asked_paths]
    derived = {"output.dtype", _PAD, _ID, *_DELIMITER} if "tokenizer.fingerprint" in changed else set()
    derived |= {path for path in changed if path.startswith(_WRITERS) and "output.formats" in changed}
    if ("output.sequence.length" in old) != ("output.sequence.length" in new):
        derived |= {path for path in changed if path.startswith(_ROWS) and path != "output.sequence.length"}
    if (_POSITION in old) != (_POSITION in new):
        # two delimiters in place of one, or one in place of two
        derived |= {_ID, _POSITION, *(path for path in _DELIMITER if path in now_asked and path in was_asked)}
    rest = sorted(changed - explained - derived)
    return lines + [_in_resolved_words(path, old, new, now_asked) for path in rest]


def _in_resolved_words(path: str, old: dict[str, object], new: dict[str, object], now_asked: dict[str, object]) -> str:
    """A change that what was written does not explain: a file's content, or what an earlier version did not record."""
    if path == "tokenizer.fingerprint":
        source = next((key for key in ("tokenizer.uri", "tokenizer.name") if key in now_asked), "tokenizer")
        return (
            f"{source}: {_plain(now_asked.get(source))} gives other tokens: was the tokenizer with fingerprint "
            f"{str(old.get(path))[:16]}, is {str(new.get(path))[:16]}"
        )
    if path in (_ID, *_DELIMITER):
        ids = (each.get(path) for each in (new, old))
        words = ("absent" if token is None else f"the token with id {token}" for token in ids)
        return _describe_field(path.removesuffix(".id"), *words)
    return _describe_field(path, _plain(new.get(path)), _plain(old.get(path)))


def _describe_field(path: str, now: str, was: str) -> str:
    return f"{path}: the job says {now}, the output has {was}"


def _flat(canonical: dict[str, Any]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in canonical.items():
        flatten(name, value, flat)
    return flat


def _resolved(path: str, changed: set[str]) -> str:
    if path in _DELIMITER and path not in changed:
        return _ID
    return _RESOLVED.get(path, path)


def _value(path: str, asked: dict[str, object]) -> object:
    return asked.get(path, _DEFAULTS.get(path))


def _shown(path: str, asked: dict[str, object]) -> str:
    if path in asked:
        return _plain(asked[path])
    if path == _POSITION and not asked.keys().isdisjoint(_DELIMITER):
        return "absent"
    return f"{_plain(_DEFAULTS[path])} (the default)" if path in _DEFAULTS else "absent"


def _plain(value: object) -> str:
    """A value as YAML shows it."""
    if isinstance(value, str):
        return value if re.fullmatch(r"[\w./:%@+=<>|{}-]+", value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return "absent" if value is None else json.dumps(value)
