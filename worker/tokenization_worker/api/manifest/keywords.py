"""Turns keywords or command-line flags into a manifest: dotted paths of fields, and three short forms.

What a value may be is decided by the models alone: nothing here looks at one, but at those of the short forms.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from tokenization_worker.errors import SpecError

SHORT = {"source": "source.uris", "tokenizer": "tokenizer.name", "output": "output.uri"}
"""What a plain value of these words stands for."""

Text = str | os.PathLike[str]


def manifest_of(name: str, fields: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """The manifest of a job `name` whose spec has these `fields`: blocks, values, and dotted paths into blocks.

    Raises `SpecError` where a path leads into something that is no block. `origin` names the keywords in messages.
    """
    spec: dict[str, Any] = {}
    plain = {path: _plain(path, value, origin) for path, value in fields.items()}
    given = [(path, field, value) for path in sorted(plain) for field, value in _spelled_out(path, plain[path]).items()]
    require_once([(path, each) for path, field, value in given for each in _paths(field, value)], origin)
    for path in sorted(fields, key=lambda path: path.count(".")):  # a block before what goes into it
        for full_path, value in _spelled_out(path, plain[path]).items():
            set_field(spec, full_path, value, origin=origin)
    return job_manifest(name, spec)


def job_manifest(name: str, spec: dict[str, Any], kind: str = "TokenizationJob") -> dict[str, Any]:
    """A manifest around `spec`, as Kubernetes wants it."""
    return {"apiVersion": "tokenization.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _spelled_out(path: str, value: Any) -> dict[str, Any]:
    """The field that a short form stands for, with its value."""
    if path == "source" and isinstance(value, (str, os.PathLike)):
        return {SHORT[path]: [os.fspath(value)]}
    if path == "source" and isinstance(value, Sequence):
        return {SHORT[path]: [os.fspath(item) if isinstance(item, (str, os.PathLike)) else item for item in value]}
    if path == "tokenizer" and isinstance(value, (str, os.PathLike)):
        return {tokenizer_field(os.fspath(value)): os.fspath(value)}
    if path == "output" and isinstance(value, (str, os.PathLike)):
        return {SHORT[path]: os.fspath(value)}
    return {path: value}


def _paths(path: str, value: Any) -> Iterator[str]:
    """The paths that are set where `path` is given `value`: with a block also all that it holds."""
    yield path
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _paths(f"{path}.{name}", item)


def require_once(given: Sequence[tuple[str, str]], origin: str) -> None:
    """Raise `SpecError` where two of `given` stand for one field: each is what a person wrote, and the field's path."""
    seen: dict[str, str] = {}
    for written, path in given:
        field = "tokenizer.name" if path == "tokenizer.uri" else path  # they exclude each other
        if field in seen:
            both = f"{written} is given twice"
            if seen[field] != written:
                both = f"{seen[field]} and {written} are given, expected one of them"
            raise SpecError("SpecInvalid", f"{origin}: {both}", next_step="leave one of them out")
        seen[field] = written


def _plain(path: str, value: Any, origin: str) -> Any:
    """A copy of `value` with whole numbers of any library as int; `SpecError` for what can be read only once."""
    if isinstance(value, Mapping):
        return {name: _plain(f"{path}.{name}", item, origin) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(path, item, origin) for item in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike):
        found = f"{origin}: {path}: found a value of type {type(value).__name__}"
        raise SpecError("SpecInvalid", found, next_step=f"give {path} a text or a list")
    return value


def tokenizer_field(value: str) -> str:
    """Which field a tokenizer goes into: that of a file, or that of a name; hf:org/name is one, hf://... a place."""
    if value.startswith("hf:") and not value.startswith("hf://"):
        return SHORT["tokenizer"]
    return "tokenizer.uri" if "/" in value or Path(value).is_file() else SHORT["tokenizer"]


def set_field(spec: dict[str, Any], path: str, value: Any, *, origin: str) -> None:
    """Set the field at a dotted `path`, making blocks on the way. A tokenizer's name and file exclude each other."""
    block = spec
    *parents, last = path.split(".")
    for parent in parents:
        block = block.setdefault(parent, {})
        if not isinstance(block, dict):
            raise SpecError("SpecInvalid", f"{origin}: spec.{path}: {parent} is not a block of fields")
    if path == "tokenizer.uri":
        block.pop("name", None)
    if path == "tokenizer.name":
        block.pop("uri", None)
    block[last] = value
