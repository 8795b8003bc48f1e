"""The data fields of a job, resolved: frozen values that the worker uses everywhere.

Invariant: two equal `DataSpec` values over the same source contents give the same bytes. Nothing here
is optional because it was not written: defaults are filled in, quantities are integers, `{rerunToken}`
is substituted and local paths are absolute plain paths. How a run is executed is not here (see
`resolve.RunLimits`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol


class SourceFormat(StrEnum):
    """How the records of a source file are laid out."""

    AUTO = "Auto"
    JSONL = "Jsonl"
    PARQUET = "Parquet"
    TEXT = "Text"


class DelimiterPosition(StrEnum):
    """Where the delimiter of a document stands."""

    BEFORE = "Before"
    AFTER = "After"
    NONE = "None"


class OutputFormat(StrEnum):
    """The file format of a shard."""

    NPY = "Npy"
    RAW = "Raw"
    LLMC = "LlmC"
    MEGATRON = "Megatron"
    WEBDATASET = "WebDataset"


COUNT_IN_31_BITS = frozenset({OutputFormat.LLMC, OutputFormat.MEGATRON})
MOST_IN_31_BITS = 2**31 - 1
"""Tokens of a shard in these formats."""

GROUP_PLACEHOLDER = "{group}"
"""In `output.path`: each group has shards of its own."""

PARTS = "Parts"
"""The format of the file that says which piece of which document stands where in a shard's rows."""


class Packing(StrEnum):
    """How documents fill rows."""

    CONCAT = "Concat"
    BEST_FIT = "BestFit"


class LongDocuments(StrEnum):
    """What packing does with documents that are longer than a row."""

    SPLIT = "Split"
    TRUNCATE = "Truncate"


class Scope(StrEnum):
    """What begins with a new row: a run of tokens, or each of its files."""

    STREAM = "Stream"
    FILE = "File"


class ShuffleUnit(StrEnum):
    """What a shuffle moves as a whole; Auto is Row where the dataset has rows, else Document."""

    AUTO = "Auto"
    DOCUMENT = "Document"
    ROW = "Row"


class DType(StrEnum):
    """The type of a token in a shard; Auto is the smallest unsigned one for the vocabulary."""

    AUTO = "Auto"
    UINT16 = "UInt16"
    UINT32 = "UInt32"


@dataclass(frozen=True, slots=True)
class Delimiters:
    """The ids that stand before and after the tokens of every document; None: none stands there."""

    begin: int | None
    end: int | None

    @classmethod
    def at(cls, position: DelimiterPosition, token: int | None) -> Delimiters:
        """One delimiter or none."""
        return cls(
            token if position is DelimiterPosition.BEFORE else None,
            token if position is DelimiterPosition.AFTER else None,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Delimiters:
        """From what `to_json` gives, as the canonical data in an index has it."""
        if "begin" in value:
            return cls(value["begin"], value["end"])
        return cls.at(DelimiterPosition(value["position"]), value["id"])

    def to_json(self) -> dict[str, object]:
        """As canonical data has them: `begin` and `end` where there are both, else `id` and `position`."""
        if self.is_pair:
            return {"begin": self.begin, "end": self.end}
        position = (
            DelimiterPosition.BEFORE
            if self.begin is not None
            else DelimiterPosition.NONE
            if self.end is None
            else DelimiterPosition.AFTER
        )
        return {"id": self.only, "position": position.value}

    @property
    def ids(self) -> tuple[int, ...]:
        """Those that there are, in the order in which they stand."""
        return tuple(token for token in (self.begin, self.end) if token is not None)

    @property
    def is_pair(self) -> bool:
        return len(self.ids) == 2

    @property
    def only(self) -> int | None:
        """The delimiter; None where there are two or none."""
        return None if len(self.ids) != 1 else self.ids[0]

    @property
    def inside(self) -> slice:
        """Which of a document's tokens are those of its text."""
        return slice(int(self.begin is not None), None if self.end is None else -1)


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Which tokenizer, and its document delimiters. Hashable and picklable; exactly one of `name`, `uri` is set.

    `end_token`: stands after every document where another token, the delimiter, stands before it.
    """

    name: str | None
    uri: str | None
    pattern: str | None
    special_tokens: tuple[tuple[str, int], ...]  # sorted by text
    delimiter_token: str | None  # None: the tokenizer's own end-of-text token
    delimiter_position: DelimiterPosition
    revision: str = ""  # of a name on the Hub: the commit at which it is read, once that is known
    end_token: str | None = None


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """A split: its leading shards, its share of the documents, or (the last one) the rest."""

    name: str
    shards: int | None
    share: Fraction | None  # of one: 0.5% is 1/200


def hash_end(share: Fraction) -> int:
    """Below this is the hash of a document that a share takes: the least number not below share * 2**64."""
    return math.ceil(share * 2**64)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A named part of the source. `share`: of its documents, as a fraction of one; None where it follows from `tokens`
    and the plan has not found it yet. `tokens`: about so many are asked for; None where a share is.
    """

    name: str
    uris: tuple[str, ...]
    share: Fraction | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where the documents are and how to read them; `uris` keep their order. With `groups` they are those of all."""

    uris: tuple[str, ...]
    format: SourceFormat
    text_field: str
    id_field: str
    document_separator: str | None
    groups: tuple[GroupSpec, ...] = ()

    @property
    def hash_ends(self) -> Mapping[str, int]:
        """Of each group of which a part is taken: the documents whose hash is below this are in it."""
        return {
            group.name: hash_end(group.share) for group in self.groups if group.share is not None and group.share < 1
        }


class TextSpec(Protocol):
    """Which documents there are: what a job and a training have in common."""

    @property
    def source(self) -> SourceSpec: ...

    @property
    def max_document_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """Rows of `length` tokens. `pad_token`, `pad_id`: what fills a row that is not full; at most one of them is set,
    and none where the tokenizer decides. `max_documents`: in a row; None: any number. `long_documents`: of packed rows.
    """

    length: int
    packing: Packing
    scope: Scope
    pad_token: str | None
    pad_id: int | None
    max_documents: int | None = None
    long_documents: LongDocuments = LongDocuments.SPLIT


def has_packed_rows(output: Mapping[str, Any]) -> bool:
    """Whether documents are packed into rows; `output` has the canonical fields of a plan or an index."""
    return "sequence" in output and bool(output["sequence"]["packing"] == Packing.BEST_FIT)


def truncates(output: Mapping[str, Any]) -> bool:
    """Whether documents are cut off behind a row."""
    return "sequence" in output and output["sequence"].get("longDocuments") == LongDocuments.TRUNCATE


def has_uneven_shards(output: Mapping[str, Any]) -> bool:
    """Whether packing decides how many rows a shard has: shards of shuffled rows are even."""
    return has_packed_rows(output) and "shuffle" not in output


@dataclass(frozen=True, slots=True)
class ShuffleSpec:
    """The units of a stream in the order that `seed` gives them; `unit` is not Auto."""

    seed: int
    unit: ShuffleUnit = ShuffleUnit.DOCUMENT

    @property
    def words(self) -> str:
        """`rows by seed 0`."""
        return f"{self.unit.value.lower()}s by seed {self.seed}"


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Where the dataset goes and how it is laid out; `uri` has no trailing slash, `splits` is never empty.

    `shard_tokens`: of a full shard, padding included; with `sequence` a multiple of its length. An uneven shard has the
    documents that end in so many tokens of the source. `shuffle`: None where documents stand in the order of
    the source.
    """

    uri: str
    formats: tuple[OutputFormat, ...]
    dtype: DType
    shard_tokens: int
    path: str
    splits: tuple[SplitSpec, ...]
    sequence: SequenceSpec | None = None
    shuffle: ShuffleSpec | None = None

    @property
    def shuffled_rows(self) -> SequenceSpec | None:
        """The rows, where they are what is shuffled."""
        return self.sequence if self.shuffle is not None and self.shuffle.unit is ShuffleUnit.ROW else None

    @property
    def packed_rows(self) -> SequenceSpec | None:
        """The rows, where documents are packed into them."""
        return self.sequence if self.sequence is not None and self.sequence.packing is Packing.BEST_FIT else None

    @property
    def longest_document(self) -> int | None:
        """Tokens of a document, delimiters included, behind which it is cut off; None where it is written whole."""
        rows = self.packed_rows
        return None if rows is None or rows.long_documents is LongDocuments.SPLIT else rows.length

    @property
    def has_uneven_shards(self) -> bool:
        """Whether packing decides how many rows a shard has."""
        return self.packed_rows is not None and self.shuffle is None

    @property
    def file_kinds(self) -> tuple[str, ...]:
        """The formats of a shard's files; where there are rows, the file of their parts is one of them, the last."""
        return self.formats if self.sequence is None else (*self.formats, PARTS)


@dataclass(frozen=True, slots=True)
class DataSpec:
    """Everything of a job that, with the contents of the source, fixes every output byte."""

    source: SourceSpec
    max_document_bytes: int
    tokenizer: TokenizerSpec
    output: OutputSpec
    rerun_token: str | None

    @property
    def path_groups(self) -> tuple[str, ...]:
        """The groups whose shards hold no tokens of others; () where groups are not in paths."""
        return tuple(group.name for group in self.source.groups) if GROUP_PLACEHOLDER in self.output.path else ()
