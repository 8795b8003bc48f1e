"""The rules of a job's models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.metadata import JobMeta
from tokenization_worker.api.types.model import Block, Rule
from tokenization_worker.api.types.walk import iter_fields


def all_rules() -> Iterator[Rule]:
    """Every rule of the models, wherever it stands."""
    seen: set[int] = set()
    blocks: list[type[Block]] = [TokenizationJob, JobMeta]
    blocks += [entry.block for entry in iter_fields(TokenizationJob) if entry.block is not None]
    for block in dict.fromkeys(blocks):
        candidates = [*block.rules, *(m for info in block.model_fields.values() for m in info.metadata)]
        candidates += [m for info in block.model_fields.values() for m in nested_metadata(info.annotation)]
        for rule in candidates:
            if isinstance(rule, Rule) and id(rule) not in seen:
                seen.add(id(rule))
                yield rule


def nested_metadata(annotation: object) -> Iterator[object]:
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation):
        yield from nested_metadata(inner)
