"""Finds the text column in the schema of a Parquet file. Pure: it reads no file.

The rule is that of `field_path`: a dot descends into a struct, else it is part of a name. Names decide alone: a name
that two columns have is refused, since nothing says which one is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome
from tokenization_worker.readers.field_path import flat_name, which_is_read
from tokenization_worker.readers.lines.text_fields import did_you_mean
from tokenization_worker.readers.parquet.file import load_pyarrow

_TEXT_TYPES = ("string", "large_string", "string_view")


class FoundColumn(NamedTuple):
    """A column of text. `path` has one name, or those of structs before it; `number` is its place among the columns of
    a row group; `warning` says that another column could be meant, or is ""."""

    path: tuple[str, ...]
    number: int
    type: Any
    warning: str


def find_text_column(schema: Any, text_field: str) -> FoundColumn:
    """The column that `text_field` names; raises `CorruptFileError(SchemaMismatch)` unless there is one, of text."""
    path = tuple(text_field.split("."))
    flat = (text_field,)
    nested = _descend(schema, path)
    warning = ""
    if len(path) > 1 and (other := _descend(schema, flat)) is not None:
        is_there = nested is not None and nested[0] == path
        warning = which_is_read(path) if is_there else ""
        nested = nested if is_there else other
    if nested is None:
        raise _mismatch(f"no column {_missing(schema, path)!r}", schema)
    path, type_ = nested
    if not _is_text(type_):
        raise _mismatch(f"column {flat_name(path)!r} is {type_}, expected string or binary", schema)
    return FoundColumn(path, list(leaf_paths(schema)).index(path), type_, warning)


def leaf_paths(schema: Any) -> Iterator[tuple[str, ...]]:
    """The path of each column as row groups number them: one for each value that is not nested any further."""
    for field in schema:
        yield from _leaves(field, ())


def _leaves(field: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    path = (*above, field.name)
    if not field.type.num_fields:
        yield path
    for number in range(field.type.num_fields):
        yield from _leaves(field.type.field(number), path)


def _descend(schema: Any, path: tuple[str, ...]) -> tuple[tuple[str, ...], Any] | None:
    """Where `path` leads, and the type there: all of it, or a column of nulls above. None where it leads nowhere."""
    types = load_pyarrow().types
    fields = schema
    type_ = None
    for depth, name in enumerate(path):
        found = fields.get_all_field_indices(name) if fields is not None else []
        if len(found) > 1:
            twice = flat_name(path[: depth + 1])
            raise _mismatch(
                f"{len(found)} columns are called {twice!r}, and one is needed: write the file again with another name "
                "for each of them",
                schema,
            )
        if not found:
            return None
        type_ = fields.field(found[0]).type
        if types.is_null(type_):
            return path[: depth + 1], type_
        fields = type_ if types.is_struct(type_) else None
    return path, type_


def _missing(schema: Any, path: tuple[str, ...]) -> str:
    """The part of a path, from its start, that leads nowhere."""
    depths = range(1, len(path))
    return flat_name(next((path[:depth] for depth in depths if _descend(schema, path[:depth]) is None), path))


def _is_text(type_: Any) -> bool:
    types = load_pyarrow().types
    value_type = type_.value_type if types.is_dictionary(type_) else type_
    text_types = (
        types.is_null,  # a partition whose writer saw no text: its rows are nulls
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    return any(is_text(value_type) for is_text in text_types)


def _mismatch(what: str, schema: Any) -> CorruptFileError:
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    names = [field.name for field in schema]
    texts = [field.name for field in schema if str(field.type) in _TEXT_TYPES and names.count(field.name) == 1]
    hint = f"; {did_you_mean(texts)}" if texts else ""
    return CorruptFileError(FileOutcome.SCHEMA_MISMATCH, None, f"{what}; columns found: {columns or 'none'}{hint}")
