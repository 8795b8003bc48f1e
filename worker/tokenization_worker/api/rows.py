"""The blocks `output.shards` and `output.sequence`: the size of a shard, and the rows that it consists of.

Owns their fields, documentation and rules. Which id fills a row is found out in the plan: it depends on the tokenizer.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, Strict

from tokenization_worker.api.data import LongDocuments, Packing, Scope
from tokenization_worker.api.tokenizer import TokenId, TokenText
from tokenization_worker.api.types.fields import PositiveBigCount, PositiveCount
from tokenization_worker.api.types.model import Rule, SpecBlock

_SHARD_TOKENS = 100_000_000
_LONGEST_ROW = 1 << 24
_LONGEST_PACKED_ROW = 1 << 20


class Shards(SpecBlock):
    """The size of a shard."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a shard has a size in tokens or in sequences: leave one of them out",
            cel=f"!has(self.sequences) || string(self.tokens) == '{_SHARD_TOKENS}'",
            holds=lambda s: s.sequences is None or s.tokens == _SHARD_TOKENS,
            field="sequences",
        ),
    )

    sequences: PositiveCount | None = Field(
        default=None,
        description="The rows of each shard, in place of tokens. Only with output.sequence.",
        examples=[8192],
    )
    tokens: PositiveBigCount = Field(
        default=_SHARD_TOKENS,
        description=(
            "The tokens of each shard. Only the last shard of a split (with leading shards: of the dataset) has fewer."
            " With output.sequence: as many rows as have at most so many tokens, at least one. With packing: BestFit"
            " and no shuffle: the documents that end in so many tokens of the source, so that shards differ a little."
        ),
        examples=[100_000_000],
    )


class Pad(SpecBlock):
    """The token that fills the rest of a row."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "write exactly one of token and id",
            cel="has(self.token) != has(self.id)",
            holds=lambda p: (p.token is None) != (p.id is None),
        ),
    )

    token: TokenText | None = Field(
        default=None, description="A special token of the tokenizer.", examples=["<|padding|>"]
    )
    id: TokenId | None = Field(
        default=None,
        description="An id that no text becomes. It may lie above the vocabulary, and must fit output.dtype.",
        examples=[100277],
    )


class Sequence(SpecBlock):
    """Rows of one length."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "BestFit packs the documents of all files together: leave out scope, or write packing: Concat",
            cel="self.packing != 'BestFit' || self.scope == 'Stream'",
            holds=lambda s: s.packing is not Packing.BEST_FIT or s.scope is Scope.STREAM,
            field="scope",
        ),
        Rule(
            f"BestFit packs rows of at most {_LONGEST_PACKED_ROW:,} tokens: lower length, or write packing: Concat",
            cel=f"self.packing != 'BestFit' || self.length <= {_LONGEST_PACKED_ROW}",
            holds=lambda s: s.packing is not Packing.BEST_FIT or s.length <= _LONGEST_PACKED_ROW,
            field="length",
        ),
        Rule(
            "maxDocuments bounds rows that are packed: write packing: BestFit, or leave it out",
            cel="!has(self.maxDocuments) || self.packing == 'BestFit'",
            holds=lambda s: s.max_documents is None or s.packing is Packing.BEST_FIT,
            field="maxDocuments",
        ),
        Rule(
            "longDocuments is for rows that are packed: write packing: BestFit, or leave it out",
            cel="self.longDocuments == 'Split' || self.packing == 'BestFit'",
            holds=lambda s: s.long_documents is LongDocuments.SPLIT or s.packing is Packing.BEST_FIT,
            field="longDocuments",
        ),
    )

    length: Annotated[int, Strict(), Field(ge=2, le=_LONGEST_ROW)] = Field(
        description=(
            "The tokens of a row. Rows do not overlap: to train on 2048 inputs and their next tokens, ask for 2049."
            f" At least 2, at most {_LONGEST_ROW:,}."
        ),
        examples=[2049],
    )
    packing: Packing = Field(
        default=Packing.CONCAT,
        description=(
            "How documents fill rows. Concat: one after the other, cut wherever a row ends. BestFit: no document is cut"
            " that fits a row; longDocuments is for the others."
        ),
        examples=["BestFit"],
    )
    long_documents: LongDocuments = Field(
        default=LongDocuments.SPLIT,
        description=(
            "With BestFit: what becomes of a document of more tokens than a row. Split: it fills rows of its own, and"
            " its rest is packed like a document. Truncate: only its first tokens are written, as many as a row has;"
            " the index counts the others."
        ),
        examples=["Truncate"],
    )
    max_documents: PositiveCount | None = Field(
        default=None,
        description=(
            "With BestFit: how many documents, or pieces of them, a row holds at most, for attention kernels with a"
            " fixed number of segments. Absent: any number."
        ),
        examples=[64],
    )
    scope: Scope = Field(
        default=Scope.STREAM,
        description=(
            "What begins with a new row: Stream: the split (with leading shards: the dataset), whose last row alone is"
            " padded; File: each source file."
        ),
        examples=["File"],
    )
    pad: Pad | None = Field(
        default=None,
        description=(
            "What fills a row that is not full. Absent: the tokenizer's own padding token if it has just one, else the"
            " delimiter."
        ),
        examples=[{"token": "<|padding|>"}],
    )
