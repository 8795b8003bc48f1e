"""The id of a document, for display. Ids are never stored and never part of a path."""

from __future__ import annotations

from tokenization_worker.readers.field_path import value_at

_INT64_MIN, _UINT64_MAX = -(1 << 63), (1 << 64) - 1


def read_id(record: object, id_field: str, uri: str, position: int) -> str:
    """The text or 64-bit integer at `id_field` (`field_path` has the rule for dots), else `<uri>@<byte offset or row>`.

    Never raises for what data holds: a missing, null or other value is what the fallback is for.
    """
    try:
        value = value_at(record, tuple(id_field.split(".")))
    except (KeyError, TypeError):
        value = None
    return describe_id(value, uri, position)


def describe_id(value: object, uri: str, position: int) -> str:
    """`value` if it is text or a 64-bit integer, else `<uri>@<byte offset or row>`."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and _INT64_MIN <= value <= _UINT64_MAX:
        return str(value)
    return f"{uri}@{position}"
