"""Receipts: the small durable records that a range or a shard is done.

Frozen values that tasks return and the ledger stores as JSON. A receipt is enough to go on without looking
at token bytes: it says how many documents and tokens each slice of the range gave to each stream. A driver may hold
200,000 of each kind: what many have in common is held once, a quarter of 1.4 KB each. They are named tuples, which are
made from a record in a fifth of the time of a frozen dataclass. A record whose fields have other types, or numbers that
cannot be, raises `TypeError` or `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from operator import itemgetter
from sys import intern
from typing import Any, NamedTuple, Self

import orjson

from tokenization_worker.readers.document_batch import FileOutcome, Poison


def _places(kind: type[tuple[Any, ...]], *names: str) -> tuple[int, ...]:
    """Where fields of a named tuple are."""
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return tuple(map(fields.index, names))


def _interned(values: Sequence[Any], places: tuple[int, ...]) -> list[Any]:
    """The values of a tuple, those at `places` each held once."""
    own = list(values)
    for place in places:
        own[place] = intern(own[place])
    return own


class _Fields:
    """The fields of a record, and of which type each is; counts are 0 or more, but for `signed`, which may be -1."""

    def __init__(self, *signed: str, **types: type) -> None:
        self._types = types
        self._kinds = tuple(types.values())
        counts = [place for place, kind in enumerate(self._kinds) if kind is int]
        self._counts = itemgetter(*counts, counts[0])  # twice, so that it gives a tuple also of one
        self._signed = signed

    def check(self, values: Sequence[Any]) -> None:
        if tuple(map(type, values)) == self._kinds and min(self._counts(values)) >= 0:
            return
        for (name, kind), value in zip(self._types.items(), values, strict=True):
            if type(value) not in ((float, int) if kind is float else (kind,)):
                raise TypeError(f"{name} is {value!r:.60}, expected {kind.__name__}")
            if kind is int and value < (-1 if name in self._signed else 0):
                raise ValueError(f"{name} is {value}, which cannot be")


def _require_counts(name: str, values: tuple[Any, ...]) -> None:
    if not ({*map(type, values)} <= _INT and min(values, default=0) >= 0):
        raise ValueError(f"{name}: found {values!r:.60}, expected counts")


_INT = frozenset([int])
_DIGITS = re.compile("[0-9a-f]*")


def _require_digests(*digests: str) -> None:
    if not _DIGITS.fullmatch("".join(digests)):
        raise ValueError(f"found {digests!r:.200}, expected digests")


class SliceResult(NamedTuple):
    """What one file slice gave: `tokens[s]`, `docs[s]` per stream; zeros unless it was read to its end.

    `digest` covers the counts and the checksums of tokens and document lengths. `records` counts lines (rows,
    pieces), blank ones too. `poison`: documents that were left out because they kill their worker, in order; they
    are among `quarantined`, too. `read_bytes`, `quarantined_bytes`: bytes of documents (docs/policy.md), which `digest`
    does not cover; None in receipts of versions that did not count them.
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
    read_bytes: int | None = None
    quarantined_bytes: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return SliceResult.of, (tuple(self),)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """From its fields in order; what it has in common with others is held once."""
        own = list(values)
        own[_OUTCOME] = intern(str(own[_OUTCOME]))
        return cls._make(own)

    @property
    def is_read(self) -> bool:
        return self.outcome == FileOutcome.READ

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        poison = value.get("poison")
        found = tuple(map(_poison_of, poison)) if poison else ()
        values = [*_SLICE(value), found, value.get("read_bytes"), value.get("quarantined_bytes")]
        _SLICE_FIELDS.check(values[: -len(cls._field_defaults)])
        values[_TOKENS], values[_DOCS] = tuple(value["tokens"]), tuple(value["docs"])
        made = cls.of(values)
        made._require_possible()
        return made

    def _require_possible(self) -> None:
        if self.outcome not in _OUTCOMES:
            raise ValueError(f"{self.outcome!r:.60} is no outcome of a file")
        if not self.tokens or len(self.tokens) != len(self.docs):
            raise ValueError(f"it has {len(self.tokens)} streams of tokens and {len(self.docs)} of documents")
        counts = (*self.tokens, *self.docs, *self.quarantined.values())
        sizes = tuple(size for size in (self.read_bytes, self.quarantined_bytes) if size is not None)
        _require_counts("tokens, docs, quarantined or bytes", counts + sizes)
        _require_digests(self.digest)

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"poison": [asdict(item) for item in self.poison]}


_SLICE = itemgetter(*SliceResult._fields[:-3])
_SLICE_FIELDS = _Fields(
    file=int, outcome=str, detail=str, tokens=list, docs=list, records=int, quarantined=dict, digest=str
)
_OUTCOMES = frozenset(map(str, FileOutcome))
_OUTCOME, _TOKENS, _DOCS = _places(SliceResult, "outcome", "tokens", "docs")


def _poison_of(value: dict[str, Any]) -> Poison:
    poison = Poison(**value)
    _POISON_FIELDS.check((poison.position, poison.detail, poison.sha256, poison.bytes))
    return poison


_POISON_FIELDS = _Fields(position=int, detail=str, sha256=str, bytes=int)


def segment_digest(slices: Iterable[SliceResult]) -> str:
    """Identifies what the streams of a range's segment hold: the slices that were read, in order."""
    digests = [(number, result.digest) for number, result in enumerate(slices) if result.is_read]
    return sha256(orjson.dumps(digests)).hexdigest()[:32]


class RangeReceipt(NamedTuple):
    """A range is tokenized: its segment is written and these are its counts.

    Slices that were read follow each other in the segment without gaps, so prefix sums over their counts
    say where each one's tokens are. `segment_digest` ties the receipt to the segment that it describes;
    `quarantine_digest` names the list of this range's unusable documents ("" for none). `samples` is the
    number of documents compared with the reference engine. `versions`: of the libraries that decided ("" in receipts
    of older versions of this program).
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
    versions: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeReceipt.of, (tuple(self),)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """From its fields in order; what it has in common with others is held once."""
        return cls._make(_interned(values, _RANGE_TEXTS))

    def disagreement(self, other: RangeReceipt) -> str | None:
        """The first slice that both read with different results, in words.

        A file that one of them dropped is no disagreement, nor is a document that killed only one of them: a verdict
        may come between two writers, and which one counts is decided by the receipt that exists.
        """
        if len(self.slices) != len(other.slices):
            return f"{len(self.slices)} slices here, {len(other.slices)} there"
        for mine, theirs in zip(self.slices, other.slices, strict=True):
            if not (mine.is_read and theirs.is_read) or mine.poison != theirs.poison:
                continue
            if mine.digest != theirs.digest:
                return f"file {mine.file}: digest {mine.digest} here, {theirs.digest} there"
        return None

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"slices": [result.to_dict() for result in self.slices]}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        values = [*_RANGE(value), value.get("versions", "")]
        _RANGE_FIELDS.check(values)
        _require_digests(value["segment_digest"], value["quarantine_digest"])
        values[_SLICES] = tuple([SliceResult.from_dict(item) for item in value["slices"]])
        return cls.of(values)


_RANGE = itemgetter(*RangeReceipt._fields[:-1])
_RANGE_FIELDS = _Fields(
    plan_id=str,
    epoch=int,
    range_id=int,
    slices=list,
    segment_digest=str,
    segment_bytes=int,
    quarantine_digest=str,
    text_bytes=int,
    source_bytes=int,
    stored_bytes=int,
    samples=int,
    engine=str,
    node=str,
    pid=int,
    seconds=float,
    versions=str,
)
_RANGE_TEXTS = _places(RangeReceipt, "plan_id", "engine", "node", "versions")
(_SLICES,) = _places(RangeReceipt, "slices")


class Piece(NamedTuple):
    """Tokens [start, end) of one stream of one range's segment."""

    range_id: int
    stream: int
    start: int
    end: int


class ShardReceipt(NamedTuple):
    """A shard is written. `version` is the store's version of the object when it was written."""

    plan_id: str
    epoch: int
    split: str
    index: int  # type: ignore[assignment]  # not the method of tuples, which nobody needs here
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

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardReceipt.of, (tuple(self),)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """From its fields in order; what it has in common with others is held once."""
        return cls._make(_interned(values, _SHARD_TEXTS))

    def disagreement(self, other: ShardReceipt) -> str | None:
        """How two builds of one shard differ, in words; None when they do not."""
        for name in ("sha256", "documents_sha256", "tokens"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine} here, {theirs} there"
        return None

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"pieces": [piece._asdict() for piece in self.pieces]}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        values = list(_SHARD(value))
        _SHARD_FIELDS.check(values)
        _require_digests(value["sha256"], value["documents_sha256"])
        values[_PIECES] = tuple(_pieces_of(value["pieces"]))
        return cls.of(values)


def _pieces_of(values: list[Any]) -> Iterator[Piece]:
    for value in values:
        piece = Piece._make(_PIECE(value))
        _require_counts("pieces", piece)
        if piece.start > piece.end:
            raise ValueError(f"a piece begins at {piece.start} and ends at {piece.end}")
        yield piece


_PIECE = itemgetter(*Piece._fields)
_SHARD = itemgetter(*ShardReceipt._fields)
_SHARD_FIELDS = _Fields(
    "shard",
    plan_id=str,
    epoch=int,
    split=str,
    index=int,
    shard=int,
    path=str,
    tokens=int,
    documents=int,
    bytes=int,
    crc32c=int,
    sha256=str,
    documents_sha256=str,
    version=str,
    pieces=list,
    node=str,
    pid=int,
    seconds=float,
)
_SHARD_TEXTS = _places(ShardReceipt, "plan_id", "split", "node")
(_PIECES,) = _places(ShardReceipt, "pieces")
