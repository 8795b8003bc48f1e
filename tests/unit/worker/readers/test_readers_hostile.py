"""Every hostile file gets what the policy says, and never anything else."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from support.faults.hostile import Hostile, hostile_files
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome, FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents

FILES = hostile_files()
OPTIONS = ReadOptions(SourceFormat.AUTO, "text", None, 64 << 20)


def outcome(file: Hostile) -> tuple[str, int, dict[str, int]]:
    documents, reasons = 0, Counter[str]()
    source = FileSlice(0, f"/corpus/{file.name}", len(file.content), "v")
    try:
        for batch in read_documents(source, OPTIONS, lambda _: io.BytesIO(file.content)):
            documents += len(batch.texts)
            reasons.update(item.reason for item in batch.rejected)
            assert len(batch.positions) == len(batch.texts)
            assert batch.records >= len(batch.texts) + len(batch.rejected)
    except CorruptFileError as damage:
        assert damage.detail
        return damage.outcome, 0, {}
    return FileOutcome.READ, documents, dict(reasons)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.id)
def test_hostile_file_gets_what_the_policy_says(file: Hostile) -> None:
    assert outcome(file) == (file.outcome, file.documents, file.quarantined)


def test_names_of_hostile_files_are_unique() -> None:
    assert len({file.name for file in FILES}) == len({file.id for file in FILES}) == len(FILES)
