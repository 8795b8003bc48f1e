"""The block `tokenizer`: which tokenizer, and the delimiter between documents.

Owns fields, documentation and rules. Whether a name is known and what a file holds is found out by the
worker in the plan, before any expensive machine is asked for.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, Strict, StringConstraints

from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.api.types.fields import ShortText
from tokenization_worker.api.types.model import Rule, SpecBlock
from tokenization_worker.api.uris import SourceUri

TokenId = Annotated[int, Strict(), Field(ge=0, le=2**32 - 1)]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
TokenText = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Delimiter(SpecBlock):
    """The token that separates documents, or the two that stand around each."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "begin and end stand in place of token: leave token out",
            cel="!has(self.token) || !(has(self.begin) || has(self.end))",
            holds=lambda d: d.token is None or (d.begin is None and d.end is None),
            field="token",
        ),
        Rule(
            "begin and end say where they stand: leave position out (position: null removes one that the API server "
            "has stored)",
            cel="!has(self.position) || !(has(self.begin) || has(self.end))",
            holds=lambda d: d.position is None or (d.begin is None and d.end is None),
            field="position",
        ),
        Rule(
            "begin and end are the same token: write one of them, or two different ones",
            cel="!has(self.begin) || !has(self.end) || self.begin != self.end",
            holds=lambda d: d.begin is None or d.begin != d.end,
            field="end",
        ),
    )

    token: TokenText | None = Field(
        default=None,
        description=(
            "A special token of the tokenizer. Absent: the tokenizer's own end-of-text token; if it has none, "
            "the plan asks for one. Text that spells it stays ordinary text."
        ),
        examples=["<|endoftext|>"],
    )
    position: DelimiterPosition | None = Field(
        default=None,
        description="Before or After every document; None writes no delimiter and ignores token. Absent: Before.",
        examples=["After"],
    )
    begin: TokenText | None = Field(
        default=None,
        description=(
            "A special token that stands before every document. With end, in place of token and position; alone it is "
            "token with position Before."
        ),
        examples=["<|begin_of_text|>"],
    )
    end: TokenText | None = Field(
        default=None,
        description=(
            "A special token that stands after every document. With begin, in place of token and position; alone it is "
            "token with position After."
        ),
        examples=["<|end_of_text|>"],
    )


class Tokenizer(SpecBlock):
    """The tokenizer: by name, or as a file."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "write exactly one of name (such as cl100k_base) and uri (a tokenizer file)",
            cel="has(self.name) != has(self.uri)",
            holds=lambda t: (t.name is None) != (t.uri is None),
        ),
        Rule(
            "pattern belongs to a rank file: write uri as well, or leave pattern out",
            cel="!has(self.pattern) || has(self.uri)",
            holds=lambda t: t.pattern is None or t.uri is not None,
            field="pattern",
        ),
        Rule(
            "specialTokens belong to a rank file: write uri as well, or leave specialTokens out",
            cel="!has(self.specialTokens) || has(self.uri)",
            holds=lambda t: t.special_tokens is None or t.uri is not None,
            field="specialTokens",
        ),
        Rule(
            "pattern and specialTokens go together: a rank file that is no known encoding needs both",
            cel="has(self.pattern) == has(self.specialTokens)",
            holds=lambda t: (t.pattern is None) == (t.special_tokens is None),
            field="pattern",
        ),
        Rule(
            "two special tokens have the same id: give each its own",
            # Quadratic over a map of thousands, above the API server's cost limit; the plan refuses it.
            cel=None,
            holds=lambda t: not t.special_tokens or len(set(t.special_tokens.values())) == len(t.special_tokens),
            field="specialTokens",
        ),
    )

    name: ShortText | None = Field(
        default=None,
        description=(
            "A tiktoken encoding (cl100k_base); a model that uses one (gpt-4); bytes: the 256 byte values and "
            "the delimiter 256; or hf:org/name[@revision]: the tokenizer.json of a model on the Hugging Face Hub. "
            "The plan pins its commit. Set exactly one of name and uri."
        ),
        examples=["cl100k_base"],
    )
    uri: SourceUri | None = Field(
        default=None,
        description=(
            "A tokenizer file at any source URI: tokenizer.json, tiktoken ranks or a SentencePiece model. "
            "Set exactly one of name and uri."
        ),
        examples=["gs://models/llama3/tokenizer.json"],
    )
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description=(
            "The regular expression that splits text before tokenizing. Only for tiktoken ranks of no known "
            "encoding, such as Llama 3; together with specialTokens."
        ),
        examples=[r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    )
    special_tokens: Annotated[dict[TokenText, TokenId], Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description=("The special tokens of tiktoken ranks of no known encoding, text to id; together with pattern."),
        examples=[{"<|end_of_text|>": 128001}],
    )
    delimiter: Delimiter = Field(
        default=Delimiter(),
        description=(
            "The token between documents, or begin and end around each. Default: the tokenizer's own end-of-text "
            "token, before every document."
        ),
        examples=[{"token": "<|endoftext|>", "position": "Before"}],
    )


class JobTokenizer(Tokenizer):
    """The tokenizer of a job, and what the job asserts of it."""

    fingerprint: Fingerprint | None = Field(
        default=None,
        description=(
            "The fingerprint that the tokenizer must have, 64 lower-case hexadecimal digits: the plan refuses every "
            "other one (FingerprintDiffers). index.json of a dataset and of a training has it. It decides no bytes; "
            "to change it needs no new rerunToken."
        ),
        examples=["67356739dee5f522696c9684a155536a15aca5036c5cae5d8563cd630df5cbbf"],
    )
