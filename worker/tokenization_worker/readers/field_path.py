"""Finds the value of a field in a JSON record or a row by its path, such as `doc.text`.

A dot descends into an object. Where the path leads nowhere, a field whose own name is the whole path is meant: writers
of flat tables call a column `doc.text`. Where both are there, the nested one is read.
"""

from __future__ import annotations

from typing import Any


def value_at(record: object, path: tuple[str, ...]) -> object:
    """The value at `path`; raises KeyError or TypeError where the record has neither field."""
    value: Any = record
    try:
        for name in path:
            value = value[name]
    except (KeyError, TypeError):
        if not isinstance(record, dict):
            raise
        return record[flat_name(path)]
    return value


def has_both(record: dict[str, object], path: tuple[str, ...]) -> bool:
    """Whether the record has the nested field and the one whose name has dots."""
    flat = flat_name(path)
    return len(path) > 1 and flat in record and has_nested(record, path)


def has_nested(record: object, path: tuple[str, ...]) -> bool:
    """Whether `path` leads to a field through objects, whatever its value is."""
    value = record
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def flat_name(path: tuple[str, ...]) -> str:
    """The name of a field that is not nested."""
    return ".".join(path)


def which_is_read(path: tuple[str, ...]) -> str:
    """A warning for data that has both fields."""
    flat, above = flat_name(path), flat_name(path[:-1])
    return (
        f"source.textField {flat!r} names two fields: {path[-1]!r} inside {above!r}, which is read, and a field "
        f"called {flat!r}, which is not; to read that one, rename it"
    )
