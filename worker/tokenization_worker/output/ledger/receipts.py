"""Receipts: small durable records that a range or a shard is finished.

Frozen values that tasks return and the ledger stores as JSON. A receipt is enough to go on without looking
at token bytes: it says how many documents and tokens each slice of the range gave to each stream. A driver may hold
200,000 of each kind: texts that many have in common are held once. The types of the fields are what a record must
hold: a field of another type, or a number that cannot be, raises `ValueError`, which names the field.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256
from sys import intern
from typing import Annotated, Any, Self

import numpy as np
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, field, to_builtins
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from tokenization_worker.output.layout import ScatterKey, ShardKey
from tokenization_worker.readers.document_batch import CrashVerdict, FileOutcome

Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]*$")]
"""Hexadecimal; empty where a receipt has none."""


class Record(Struct, frozen=True, gc=False):
    """A value with a JSON form: its fields by their names. Fields that this version does not know are ignored.

    `gc=False`: no receipt can be part of a cycle, so that the garbage collector need not look at them.
    """

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = to_builtins(self)
        return fields

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        try:
            return convert(value, cls)
        except ValidationError as error:
            raise ValueError(str(error)) from error

    def _hold_once(self, *names: str) -> None:
        """Share these texts with all receipts that have the same."""
        for name in names:
            force_setattr(self, name, intern(getattr(self, name)))


_OUTCOMES = frozenset(map(str, FileOutcome))


class SliceResult(Record, frozen=True, gc=False):
    """What one file slice gave: `tokens[s]`, `docs[s]` per stream; zeros unless it was read to its end.

    `digest` covers the counts and the checksums of tokens and document lengths. `records` counts lines (rows,
    texts), blank ones too. `crash_verdicts`, on disk `poison`: documents that were left out because they crash their
    worker, in order; they are among `quarantined`, too. `read_bytes`, `quarantined_bytes`: bytes of documents
    (docs/policy.md), which `digest` does not cover; None in receipts of versions that did not count them. `left_out`:
    usable documents that are not in the share of the file's group; not there where the whole group is taken.
    `truncated`: tokens per stream of long documents that are not written; not there where there are none.
    """

    file: Count
    outcome: str
    detail: str
    tokens: Annotated[tuple[Count, ...], Meta(min_length=1)]
    docs: tuple[Count, ...]
    records: Count
    quarantined: dict[str, Count]
    digest: Digest
    crash_verdicts: tuple[CrashVerdict, ...] = field(default=(), name="poison")
    read_bytes: Count | None = None
    quarantined_bytes: Count | None = None
    left_out: Count | UnsetType = field(default=UNSET, name="leftOut")
    truncated: tuple[Count, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.outcome not in _OUTCOMES:
            raise ValueError(f"{self.outcome!r:.60} is not a file outcome")
        if len(self.tokens) != len(self.docs):
            raise ValueError(f"it has {len(self.tokens)} streams of tokens and {len(self.docs)} of documents")
        if self.truncated is not UNSET and len(self.truncated) != len(self.tokens):
            raise ValueError(f"it has {len(self.tokens)} streams of tokens, and {len(self.truncated)} of those cut off")
        if any(item.position < 0 or item.bytes < 0 for item in self.crash_verdicts):
            raise ValueError("poison: the position or size of a document is negative")
        force_setattr(self, "outcome", intern(str(self.outcome)))

    @property
    def is_read(self) -> bool:
        return self.outcome == FileOutcome.READ

    @property
    def documents_read(self) -> int:
        """Written, unusable, or left out."""
        return sum(self.docs) + sum(self.quarantined.values()) + (self.left_out or 0)


def segment_digest(slices: Iterable[SliceResult]) -> str:
    """Identifies what the streams of a range's segment hold: the slices that were read, in order."""
    digests = [(number, result.digest) for number, result in enumerate(slices) if result.is_read]
    return sha256(orjson.dumps(digests)).hexdigest()[:32]


class RangeReceipt(Record, frozen=True, gc=False):
    """A range is tokenized: its segment is written and these are its counts.

    Slices that were read follow each other in the segment without gaps, so prefix sums over their counts
    say where each one's tokens are. `segment_digest` ties the receipt to the segment that it describes;
    `quarantine_digest` names the list of this range's unusable documents ("" for none). `samples` is the
    number of documents compared with the reference engine. `versions`: of the libraries that decided ("" in receipts
    of older versions of this program).
    """

    plan_id: str
    epoch: Count
    range_id: Count
    slices: tuple[SliceResult, ...]
    segment_digest: Digest
    segment_bytes: Count
    quarantine_digest: Digest
    text_bytes: Count
    source_bytes: Count
    stored_bytes: Count
    samples: Count
    engine: str
    node: str
    pid: Count
    seconds: float
    versions: str = ""

    def __post_init__(self) -> None:
        self._hold_once("plan_id", "engine", "node", "versions")

    def disagreement(self, other: RangeReceipt) -> str | None:
        """The first slice that both read with different results, in words.

        A file that one of them dropped is no disagreement, nor is a document that killed only one of them: a verdict
        may come between two writers, and which one counts is decided by the receipt that exists.
        """
        if len(self.slices) != len(other.slices):
            return f"{len(self.slices)} slices here, {len(other.slices)} there"
        for mine, theirs in zip(self.slices, other.slices, strict=True):
            if not (mine.is_read and theirs.is_read) or mine.crash_verdicts != theirs.crash_verdicts:
                continue
            if mine.digest != theirs.digest:
                return f"file {mine.file}: digest {mine.digest} here, {theirs.digest} there"
        return None


class Span(Record, frozen=True, gc=False, omit_defaults=True):
    """Tokens [start, end) of one stream of one range's segment; `pad`: tokens of padding behind them."""

    range_id: Count
    stream: Count
    start: Count
    end: Count
    pad: Count = 0

    @property
    def stored(self) -> int:
        """Tokens in a shard, padding included."""
        return self.end - self.start + self.pad

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ValueError(f"a span begins at {self.start} and ends at {self.end}")


class ScatterReceipt(Record, frozen=True, gc=False):
    """A window of a stream is scattered. `cell_tokens`: of each cell, u32 little-endian in base64; `size`: of the
    object in bytes, whose content has the digest `object_digest`.
    """

    plan_id: str
    epoch: Count
    stream: Count
    number: Count
    units: Count
    tokens: Count
    cell_tokens: str
    object_digest: Digest
    size: Count
    node: str
    pid: Count
    seconds: float

    def __post_init__(self) -> None:
        self._hold_once("plan_id", "node")

    @property
    def key(self) -> ScatterKey:
        return ScatterKey(self.stream, self.number)

    @property
    def cells(self) -> NDArray[np.uint32]:
        """The tokens of each cell, u32[n_cells]."""
        return np.frombuffer(b64decode(self.cell_tokens, validate=True), dtype="<u4")

    def disagreement(self, other: ScatterReceipt) -> str | None:
        """How two objects of one window differ, in words; None when they do not."""
        if self.object_digest == other.object_digest:
            return None
        return f"content {self.object_digest} here, {other.object_digest} there"


class WrittenFile(Record, frozen=True, gc=False):
    """One file of a shard as it was written. `format`: its name in the manifest; `version`: the store's, of the object
    when it was written."""

    format: str
    path: str
    bytes: Count
    crc32c: Count
    sha256: Digest
    version: str


class ShardReceipt(Record, frozen=True, gc=False, omit_defaults=True):
    """A shard is written: `files` are its files, the main file first.

    The record of a shard of one file has the fields of that file and no list, as it had before shards could have
    several. `listed` is the list of all files where there are several; its first entry repeats the main file's fields.
    `tokens` are those of documents. `spans`: none of a shuffled shard. `rows`: of a shard of rows, which may hold
    padding as well, and has no documents sidecar: `documents_sha256` is "" then. `group`: "" where groups are not in
    paths.
    """

    plan_id: str
    epoch: Count
    split: str
    index: Count
    shard: Annotated[int, Meta(ge=-1)]
    path: str
    tokens: Count
    documents: Count
    bytes: Count
    crc32c: Count
    sha256: Digest
    documents_sha256: Digest
    version: str
    spans: tuple[Span, ...] = field(name="pieces")
    node: str
    pid: Count
    seconds: float
    listed: tuple[WrittenFile, ...] = field(default=(), name="files")
    rows: Count = 0
    group: str = ""

    def __post_init__(self) -> None:
        self._hold_once("plan_id", "split", "node", "group")
        if self.listed and (len(self.listed) == 1 or self._main_file(self.listed[0].format) != self.listed[0]):
            raise ValueError("files: the first of several files must be the one that the other fields describe")

    @property
    def key(self) -> ShardKey:
        return ShardKey(self.split, self.index, self.group)

    def _main_file(self, format: str) -> WrittenFile:
        return WrittenFile(format, self.path, self.bytes, self.crc32c, self.sha256, self.version)

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        """All files; the format of an only file is "", since its plan says it."""
        return self.listed or (self._main_file(""),)

    def disagreement(self, other: ShardReceipt) -> str | None:
        """How two builds of one shard differ, in words; None when they do not."""
        for name in ("sha256", "documents_sha256", "tokens", "rows"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine} here, {theirs} there"
        mine, theirs = ([(file.path, file.sha256) for file in receipt.files] for receipt in (self, other))
        return None if mine == theirs else f"files {mine} here, {theirs} there"
