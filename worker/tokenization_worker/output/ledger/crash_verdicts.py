"""Verdicts on documents that crash the tokenizer: written once, and valid for every later writer.

A verdict is a hint, as that on a corrupt file is: which documents are left out of a dataset is in the receipts.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import Any

from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_record
from tokenization_worker.output.record import parsing
from tokenization_worker.output.scan import read_ours
from tokenization_worker.readers.document_batch import EXCERPT_CHARACTERS, CrashVerdict, FileSlice, Reason
from tokenization_worker.storage.base import Store

_VERDICT = r"[0-9]{8,}-[0-9]{16,}\.json"


def record_crash_verdict(store: Store, source: FileSlice, position: int, text: str, detail: str) -> CrashVerdict:
    """Write down that the document at `position` kills its worker; the first writer's verdict is the one that counts.

    Never holds more than the text and its UTF-8.
    """
    data = text.encode()
    verdict = {
        "file": source.file,
        "uri": source.uri,
        "position": position,
        "reason": Reason.KILLS_WORKER.value,
        "detail": detail,
        "sha256": sha256(data).hexdigest(),
        "bytes": len(data),
        "excerpt": text[:EXCERPT_CHARACTERS],
    }
    path = layout.crash_verdict_path(source.file, position)
    found = create_record(store, path, verdict)
    with parsing(store.uri, path):
        return _verdict_of(found)


def read_crash_verdicts(store: Store) -> dict[int, tuple[CrashVerdict, ...]]:
    """All verdicts that are there: file -> its documents, in order."""
    found: defaultdict[int, list[CrashVerdict]] = defaultdict(list)
    for file, item in read_ours(store, layout.CRASH_VERDICTS, _VERDICT, ("",), _verdict):
        found[file].append(item)
    return {file: tuple(sorted(items, key=lambda item: item.position)) for file, items in found.items()}


def _verdict(path: str, verdict: dict[str, Any]) -> tuple[int, CrashVerdict]:
    file, known = verdict["file"], _verdict_of(verdict)
    if type(file) is not int or path != layout.crash_verdict_path(file, known.position):
        raise ValueError(f"it is the verdict on the document at {known.position} of file {file!r:.60}")
    return file, known


def _verdict_of(verdict: dict[str, Any]) -> CrashVerdict:
    return CrashVerdict(
        position=int(verdict["position"]),
        detail=str(verdict["detail"]),
        sha256=str(verdict["sha256"]),
        bytes=int(verdict["bytes"]),
    )
