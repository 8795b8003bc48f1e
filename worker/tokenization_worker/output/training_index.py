"""The index of a training: written last, when the tokenizer is there. Reads and checks it."""

from __future__ import annotations

from typing import Any, TypedDict, cast

from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_or_read
from tokenization_worker.output.index import is_of_training, read_index
from tokenization_worker.output.record import dump_record, load_record, parsing, require_version
from tokenization_worker.output.recovery import advise_index
from tokenization_worker.storage.base import NotFound, Store

FORMAT_VERSION = 1


class TrainedTokenizer(TypedDict):
    """One tokenizer. `file`: which a job names. `pattern` and `specialTokens`: what a rank file needs beside it."""

    file: str
    vocabularySize: int
    fingerprint: str
    delimiter: str
    pattern: str
    specialTokens: dict[str, int]


class CountsFacts(TypedDict):
    """The counts: how many pieces, how many different ones, and what identifies them."""

    pieces: int
    distinct: int
    digest: str


class DocumentFacts(TypedDict):
    """What became of all documents, and how many files are corrupt."""

    read: int
    counted: int
    heldOut: int
    leftOut: int
    quarantined: dict[str, int]
    textBytes: int
    filesDropped: int


class FileFacts(TypedDict):
    """A file beside the index."""

    bytes: int
    sha256: str


class TrainingRun(TypedDict):
    """How this training was asked for, and with what it was made."""

    countingKey: str
    trainingKey: str
    planId: str
    asked: dict[str, Any]
    libraries: dict[str, str]


class TrainingIndex(TypedDict):
    """index.json of a training (docs/train-a-tokenizer.md)."""

    formatVersion: int
    kind: str
    dataKey: str
    data: dict[str, Any]
    tokenizers: list[TrainedTokenizer]
    counts: CountsFacts
    documents: DocumentFacts
    files: dict[str, FileFacts]
    run: TrainingRun


def write_training_index(store: Store, index: TrainingIndex) -> TrainingIndex:
    """Write the index, or return the one that a concurrent start of the same training wrote first."""
    found = create_or_read(store, layout.INDEX, dump_record(dict(index)))
    return index if found is None else _parse(store, found)


def read_training_index(store: Store) -> TrainingIndex | None:
    """The index of the training at `store`, or None where none is finished; raises `ChangedError` for another index,
    and `DataError` for one that is not as it was written.
    """
    try:
        data = store.read(layout.INDEX)
    except NotFound:
        return None
    if not is_of_training(data):
        read_index(store)  # raises where another program wrote it
        raise ChangedError(
            "OutputConflict",
            f"{store.uri} holds a dataset, no training of a tokenizer",
            next_step="write to another output.uri",
        )
    return _parse(store, data)


def _parse(store: Store, data: bytes) -> TrainingIndex:
    with parsing(store.uri, layout.INDEX, advise=lambda: advise_index(store)):
        fields = load_record(data)
        require_version(store.uri, layout.INDEX, fields["formatVersion"], FORMAT_VERSION)
        expected = {"tokenizers": list, **dict.fromkeys(("counts", "documents", "files", "run"), dict)}
        for name, kind in expected.items():
            if not isinstance(fields[name], kind):
                raise TypeError(f"{name} is of type {type(fields[name]).__name__}, expected {kind.__name__}")
    return cast(TrainingIndex, fields)
