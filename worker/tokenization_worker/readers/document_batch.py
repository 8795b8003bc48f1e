"""The values at the border of the readers: source slices, batches of documents, and refused records.

Owns the words (file kinds, slices, batches, reasons, outcomes). Invariant: every record of a slice is in
exactly one place: `texts`, `rejected`, or only in the count `records` (a blank line). Which tokens a
text becomes, where a rejection is written and what a dropped file costs is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokenization_worker.api.data import SourceFormat, TextSpec


class Compression(StrEnum):
    """How the stored bytes of a file are packed, by its magic bytes."""

    NONE = "None"
    GZIP = "Gzip"
    ZSTD = "Zstd"


class FileOutcome(StrEnum):
    """What became of a file; every outcome but Read drops it whole."""

    READ = "Read"
    CORRUPT_FILE = "CorruptFile"
    EMPTY_FILE = "EmptyFile"
    WRONG_ENCODING = "WrongEncoding"
    SCHEMA_MISMATCH = "SchemaMismatch"
    UNSUPPORTED_FILE = "UnsupportedFile"


class Reason(StrEnum):
    """Why one document is quarantined."""

    INVALID_JSON = "InvalidJson"
    NOT_AN_OBJECT = "NotAnObject"
    MISSING_TEXT = "MissingText"
    NULL_TEXT = "NullText"
    WRONG_TEXT_TYPE = "WrongTextType"
    INVALID_UTF8 = "InvalidUtf8"
    DOCUMENT_TOO_LARGE = "DocumentTooLarge"
    KILLS_WORKER = "KillsWorker"


class CorruptFileError(Exception):
    """A file that cannot be used as a whole: none of its documents count, also not those before the damage.

    `offset` is how many stored bytes had been taken in when the decoder gave up (None: not known).
    A retry does not help; the file has to be replaced or left out.
    """

    def __init__(self, outcome: FileOutcome, offset: int | None, detail: str) -> None:
        super().__init__(outcome, offset, detail)
        self.outcome = outcome
        self.offset = offset
        self.detail = detail

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (near stored byte {self.offset})"
        return f"{self.outcome}: {self.detail}{where}"


@dataclass(frozen=True, slots=True)
class FileKind:
    """Format (never Auto) and compression of one file."""

    format: SourceFormat
    compression: Compression


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The records of one file that start in [start, end).

    Bounds are row groups for Parquet, else byte offsets in the decompressed content. `end` -1 means to the end
    of the file. `kind` is known where a file was cut and otherwise found by reading. `pin` is the `SourceFile`'s.
    """

    file: int
    uri: str
    size: int
    version: str
    start: int = 0
    end: int = -1
    kind: FileKind | None = None
    pin: str = ""
    inode: int = 0
    ctime_ns: int = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The data fields that decide how bytes become documents; sizes are bytes of UTF-8."""

    format: SourceFormat
    text_field: str
    document_separator: bytes | None
    max_document_bytes: int

    @classmethod
    def of(cls, data: TextSpec) -> Self:
        """The options of a job."""
        source = data.source
        separator = source.document_separator
        return cls(
            format=source.format,
            text_field=source.text_field,
            document_separator=None if separator is None else separator.encode(),
            max_document_bytes=data.max_document_bytes,
        )


WHAT_TO_DO = "; what to do: "
"""The detail of a corrupt file ends with this and the step that repairs the file."""

EXCERPT_CHARACTERS = 200
"""How much of an unusable document the quarantine shows."""

EXCERPT_BYTES = 804  # 200 characters of at most 4 bytes, and one cut in two


class Rejected(NamedTuple):
    """One record that is not a usable document: a named tuple, made in a fifth of the time of a frozen dataclass.

    `position` is as in `DocumentBatch`; `record` is its 0-based ordinal within the slice, blank lines
    counted; `excerpt` is the first `EXCERPT_CHARACTERS` of the raw record, or of a text that kills its worker.
    `bytes` are the document's, as in `DocumentBatch`.
    """

    position: int
    record: int
    reason: str
    detail: str
    excerpt: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CrashVerdict:
    """A document that kills the process that encodes it, also when that encodes nothing else.

    `position` is as in `DocumentBatch`; `detail` says how the process died; `sha256` and `bytes` are of the text's
    UTF-8.
    """

    position: int
    detail: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Consecutive records of a slice, in file order.

    `positions` is int64[len(texts)]: byte offset of the record in the decompressed file, or row number in
    a Parquet file. `records` counts what was passed (lines with blank ones, pieces, rows), so that ordinals
    and line numbers are sums. `source_bytes` are decompressed bytes (Parquet: bytes of text); over the
    slices of a JSONL or text file they sum to its decompressed size. `other_bytes` of them belong to no document:
    blank lines, separators of text. The rest are the bytes of documents: a line with its LF, a text, a value of
    Parquet. Both are right as sums over a slice: bytes of a batch that ends inside a run of records are counted with
    a later one. `has_lines`: the records are lines of JSON, larger than their texts.
    """

    texts: list[str]
    positions: npt.NDArray[np.int64]
    rejected: list[Rejected]
    records: int
    source_bytes: int
    other_bytes: int = 0
    has_lines: bool = False


def excerpt(record: bytes | bytearray | memoryview) -> str:
    """The first `EXCERPT_CHARACTERS` of a raw record, whatever its bytes are."""
    return bytes(record[:EXCERPT_BYTES]).decode("utf-8", "replace")[:EXCERPT_CHARACTERS]
