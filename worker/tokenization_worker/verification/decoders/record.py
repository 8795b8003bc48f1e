"""The common values of verify's decoders: a record, corruption, and the stream that they read."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from hashlib import sha256

from tokenization_worker.readers.document_batch import FileOutcome, Reason
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.facts import CrashDigests


class CorruptSource(Exception):
    """The file cannot be used as a whole."""

    def __init__(self, outcome: FileOutcome, detail: str) -> None:
        super().__init__(outcome, detail)
        self.outcome = outcome
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Record:
    """One record: a document (`text`) or unusable (`reason`). Blank lines are no records, but are counted.

    `position` is the byte offset in the decompressed file, or the row; `number` counts lines, pieces or rows
    from 1. `raw` is the line of a JSONL file. `size`: the document's bytes: a line with its LF, a text without
    separator and byte order mark, the value of a row.
    """

    position: int
    number: int
    text: str | None
    reason: Reason | None = None
    raw: bytes = b""
    size: int = 0


def refuse_crashing(record: Record, crash_verdicts: CrashDigests) -> Record:
    """The record as a dataset has it: refused if it kills workers, and still holds the text that did."""
    digest = crash_verdicts.get(record.position)
    if record.text is None or digest is None or sha256(record.text.encode()).hexdigest() != digest:
        return record
    return replace(record, text=None, reason=Reason.KILLS_WORKER)


class SeekableStream(io.RawIOBase):
    """The store's stream as the standard library wants it; keeps the store's own error. `on_advance`: of bytes."""

    def __init__(self, stream: ByteReader, on_advance: OnAdvance = ignore_advance) -> None:
        self._stream = stream
        self._on_advance = on_advance
        self._read_bytes = 0
        self.error: BaseException | None = None

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except BaseException as error:  # kept, and raised again: whatever the store raises
            self.error = error
            raise
        buffer[: len(data)] = data
        self._read_bytes += len(data)
        self._on_advance(self._read_bytes)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
