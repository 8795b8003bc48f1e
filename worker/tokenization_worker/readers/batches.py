"""Collects accepted and refused records until there is enough for a `DocumentBatch`.

Invariant: nothing added is lost or counted twice between two batches, and ordinals of refused records go
on over them. What is accepted is decided by the format's reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tokenization_worker.readers.document_batch import DocumentBatch, Reason, Rejected, excerpt

BATCH_BYTES = 2 << 20
"""Source bytes after which a batch is handed on. One record larger than this is a batch of its own."""

MAX_REJECTED = 10_000
"""Unusable records after which a batch is handed on whatever its bytes, also in the middle of a run of lines: each
takes 260 to 310 bytes of memory, which for lines of one byte made a batch of 276 MB (2026-11-21)."""

MAX_TEXTS = 1 << 16
"""Documents after which a batch is handed on whatever its bytes: 8 million empty texts are 19 KB of Parquet, and to
encode them at once took 600 bytes each, 4.8 GB. With this number a worker takes 150 MB for them (2026-11-24, EPYC)."""


@dataclass(slots=True)
class BatchBuilder:
    """The batch in the making; its lists are appended to directly. `positions` are int64 arrays of texts."""

    texts: list[str] = field(default_factory=list)
    positions: list[npt.NDArray[np.int64]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    records: int = 0
    source_bytes: int = 0
    other_bytes: int = 0
    has_lines: bool = False
    _records_before: int = 0

    def reject(
        self,
        position: int,
        record: int,
        reason: Reason,
        detail: str,
        raw: bytes | bytearray | memoryview,
        size: int | None = None,
    ) -> None:
        """Note an unusable record; `record` is its ordinal within this batch.

        `size`: the document's bytes, where `raw` has another length.
        """
        size = len(raw) if size is None else size
        self.rejected.append(Rejected(position, self._records_before + record, reason, detail, excerpt(raw), size))

    @property
    def is_full(self) -> bool:
        return self.source_bytes >= BATCH_BYTES or self.has_many_records

    @property
    def has_many_records(self) -> bool:
        """Whether it is to be handed on also in the middle of a run of records."""
        return len(self.texts) >= MAX_TEXTS or len(self.rejected) >= MAX_REJECTED

    @property
    def room(self) -> int:
        """Texts that it may still take; at least one where it has not many records."""
        return MAX_TEXTS - len(self.texts)

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.source_bytes)

    def take(self) -> DocumentBatch:
        """Hand the batch over and begin the next one."""
        batch = DocumentBatch(
            texts=self.texts,
            positions=np.concatenate(self.positions) if self.positions else np.empty(0, dtype=np.int64),
            rejected=self.rejected,
            records=self.records,
            source_bytes=self.source_bytes,
            other_bytes=self.other_bytes,
            has_lines=self.has_lines,
        )
        self._records_before += self.records
        self.texts, self.positions, self.rejected = [], [], []
        self.records = self.source_bytes = self.other_bytes = 0
        return batch


def too_large(size: int, max_document_bytes: int, bound: str = "") -> str:
    """The detail of a refused document whose text has `size` bytes."""
    return f"the text has {bound}{size} bytes of UTF-8, documents.maxBytes is {max_document_bytes}"


def invalid_utf8(error: UnicodeDecodeError) -> str:
    """The detail of a refused document whose bytes are not UTF-8."""
    return f"{wrong_byte(error, 'text')}: {error.reason}"


def wrong_byte(error: UnicodeDecodeError, whole: str) -> str:
    """Which byte of the `whole`, as its readers call it, cannot be decoded."""
    return f"byte 0x{error.object[error.start]:02x} at byte {error.start} of the {whole}"
