"""The claim of a training on its output: of all trainings from the same counts, one alone writes tokenizers there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_record
from tokenization_worker.output.record import load_record, parsing
from tokenization_worker.storage.base import NotFound, Store


class Claim(TypedDict):
    """`vocabSizes`: of the tokenizers, ascending; `folders`: of the files of each, "" or with a slash at its end."""

    trainingKey: str
    vocabSizes: list[int]
    folders: list[str]


def create_claim(store: Store, training_key: str, folders: Mapping[int, str]) -> Claim:
    """Claim the output, or return the claim that another start wrote first. `folders`: by size."""
    mine = {"trainingKey": training_key, "vocabSizes": list(folders), "folders": list(folders.values())}
    return cast(Claim, create_record(store, layout.training_claim_path(), mine))


def find_claim(store: Store) -> Claim | None:
    """The claim; None where no training has begun to write its tokenizers. Raises `DataError` for a corrupt one."""
    path = layout.training_claim_path()
    try:
        data = store.read(path)
    except NotFound:
        return None
    with parsing(store.uri, path):
        return cast(Claim, load_record(data))
