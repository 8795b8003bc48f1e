"""Walk the fields of the manifest models by the names that users write.

One place knows how a pydantic annotation hides a block inside Optional, Annotated, list or dict. The
reference page, the messages about unknown fields and the command line's flags all enumerate fields
through it, so a new field appears everywhere at once.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tokenization_worker.api.types.model import Block


@dataclass(frozen=True, slots=True)
class FieldEntry:
    """A field of a manifest: `path` is dotted as users write it, with `[]` after a list."""

    path: str
    name: str  # the attribute
    info: FieldInfo
    owner: type[Block]
    block: type[Block] | None  # the block that the field (or each item of it) is
    in_list: bool  # whether any part of the path is an item of a list


def iter_fields(model: type[Block], prefix: str = "", *, in_list: bool = False) -> Iterator[FieldEntry]:
    """Yield every field below `model`, blocks before their fields, in the order of the models."""
    for name, info in model.model_fields.items():
        path = f"{prefix}.{info.alias}" if prefix else str(info.alias)
        block, is_list = block_type(info.annotation), is_list_type(info.annotation)
        yield FieldEntry(path, name, info, model, block, in_list)
        if block is not None:
            yield from iter_fields(block, f"{path}[]" if is_list else path, in_list=in_list or is_list)


def strip_annotation(annotation: Any) -> Any:
    """Return `annotation` without Annotated and Optional around it; a real union is returned as it is."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not type(None)]
            if len(members) != 1:
                return annotation
            annotation = members[0]
        else:
            return annotation


def is_list_type(annotation: Any) -> bool:
    """Return whether a field holds a list."""
    return get_origin(strip_annotation(annotation)) is list


def block_type(annotation: Any) -> type[Block] | None:
    """Return the block that a field is, or that each item of its list is; None for plain values."""
    bare = strip_annotation(annotation)
    if get_origin(bare) is list:
        bare = strip_annotation(get_args(bare)[0])
    return bare if isinstance(bare, type) and issubclass(bare, Block) else None


def choices_of(annotation: Any) -> list[str]:
    """Return the words that a field (or each item of it) may hold; empty where it is not a choice."""
    bare = strip_annotation(annotation)
    if get_origin(bare) is list:
        bare = strip_annotation(get_args(bare)[0])
    if get_origin(bare) is Literal:
        return [str(word) for word in get_args(bare)]
    if isinstance(bare, type) and issubclass(bare, StrEnum):
        return [member.value for member in bare]
    return []


def known_names(model: type[Block]) -> list[str]:
    """Return the field names of a block as users write them."""
    return [str(info.alias) for info in model.model_fields.values()]


def field_at(model: type[Block], loc: tuple[int | str, ...]) -> tuple[type[Block] | None, FieldInfo | None]:
    """Return the block and the field that a path of pydantic leads to; None where it leaves the blocks."""
    block: type[Block] | None = model
    info: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if block is None:
            return None, None
        info = next((f for f in block.model_fields.values() if f.alias == part), None)
        block = block_type(info.annotation) if info is not None else None
    return block, info
