"""Receipts: the small durable records that a range or a shard is done.

Frozen values that tasks return and the ledger stores as JSON. A receipt is enough to go on without looking
at token bytes: it says how many documents and tokens each slice of the range gave to each stream. A driver may hold
200,000 of each kind: what many have in common is held once, a quarter of 1.4 KB each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from sys import intern
from typing import Any, Self

import orjson

from tokenization_worker.readers.documents import FileOutcome, Poison


def _by_values(record: Any) -> tuple[Any, ...]:
    """What pickle needs to make the record again, by way of its constructor."""
    return type(record), tuple([getattr(record, name) for name in record.__slots__])


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What one file slice gave: `tokens[s]`, `docs[s]` per stream; zeros unless it was read to its end.

    `digest` covers the counts and the checksums of tokens and document lengths. `records` counts lines (rows,
    pieces), blank ones too. `poison`: documents that were left out because they kill their worker, in order; they
    are among `quarantined`, too.
    """

    file: int
    outcome: str
    detail: str
    tokens: tuple[int, ...]
    docs: tuple[int, ...]
    records: int
    quarantined: dict[str, int]
    digest: str
    poison: tuple[Poison, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", intern(str(self.outcome)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_values(self)

    @property
    def is_read(self) -> bool:
        return self.outcome == FileOutcome.READ

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        poison = tuple(Poison(**item) for item in value.get("poison", ()))
        return cls(**{**value, "tokens": tuple(value["tokens"]), "docs": tuple(value["docs"]), "poison": poison})


def segment_digest(slices: Iterable[SliceResult]) -> str:
    """Identifies what the streams of a range's segment hold: the slices that were read, in order."""
    digests = [(number, result.digest) for number, result in enumerate(slices) if result.is_read]
    return sha256(orjson.dumps(digests)).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RangeReceipt:
    """A range is tokenized: its segment is written and these are its counts.

    Slices that were read follow each other in the segment without gaps, so prefix sums over their counts
    say where each one's tokens are. `segment_digest` ties the receipt to the segment that it describes;
    `quarantine_digest` names the list of this range's unusable documents ("" for none). `samples` is the
    number of documents compared with the reference engine.
    """

    plan_id: str
    epoch: int
    range_id: int
    slices: tuple[SliceResult, ...]
    segment_digest: str
    segment_bytes: int
    quarantine_digest: str
    text_bytes: int
    source_bytes: int
    stored_bytes: int
    samples: int
    engine: str
    node: str
    pid: int
    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan_id", intern(self.plan_id))
        object.__setattr__(self, "engine", intern(self.engine))
        object.__setattr__(self, "node", intern(self.node))

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_values(self)

    def disagreement(self, other: RangeReceipt) -> str | None:
        """The first slice that both read with different results, in words.

        A file that one of them dropped is no disagreement, nor is a document that killed only one of them: a verdict
        may come between two writers, and which one counts is decided by the receipt that exists.
        """
        for mine, theirs in zip(self.slices, other.slices, strict=True):
            if not (mine.is_read and theirs.is_read) or mine.poison != theirs.poison:
                continue
            if mine.digest != theirs.digest:
                return f"file {mine.file}: digest {mine.digest} here, {theirs.digest} there"
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        return cls(**{**value, "slices": tuple(SliceResult.from_dict(item) for item in value["slices"])})


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens [start, end) of one stream of one range's segment."""

    range_id: int
    stream: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """A shard is written. `version` is the store's version of the object when it was written."""

    plan_id: str
    epoch: int
    split: str
    index: int
    shard: int
    path: str
    tokens: int
    documents: int
    bytes: int
    crc32c: int
    sha256: str
    documents_sha256: str
    version: str
    pieces: tuple[Piece, ...]
    node: str
    pid: int
    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan_id", intern(self.plan_id))
        object.__setattr__(self, "split", intern(self.split))
        object.__setattr__(self, "node", intern(self.node))

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_values(self)

    def disagreement(self, other: ShardReceipt) -> str | None:
        """How two builds of one shard differ, in words; None when they do not."""
        for name in ("sha256", "documents_sha256", "tokens"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine} here, {theirs} there"
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        return cls(**{**value, "pieces": tuple(Piece(**piece) for piece in value["pieces"])})
