"""Verdicts on corrupt source files: written once, and valid for every later writer of the output."""

from __future__ import annotations

from typing import Any

from tokenization_worker.output import layout
from tokenization_worker.output.scan import RECORD, CorruptRecord, read_ours
from tokenization_worker.readers.document_batch import FileOutcome
from tokenization_worker.storage.base import Store


def read_file_verdicts(store: Store, corrupt: list[CorruptRecord]) -> dict[int, tuple[str, str]]:
    """All verdicts: file -> (outcome, detail). Those that are not as they were written are added to `corrupt`."""
    return {
        file: (outcome, detail)
        for file, outcome, detail in read_ours(store, layout.VERDICTS, RECORD, ("",), _verdict, corrupt)
    }


def _verdict(path: str, record: dict[str, Any]) -> tuple[int, str, str]:
    file, outcome, detail = record["file"], record["outcome"], record["detail"]
    if type(file) is not int or path != layout.verdict_path(file):
        raise ValueError(f"it is the verdict on file {file!r:.60}")
    if outcome not in tuple(FileOutcome) or type(detail) is not str:
        raise ValueError(f"{outcome!r:.60} is not a file outcome, or its detail is not text")
    return file, outcome, detail
