"""The TokenizerTraining: from which text, and how, a tokenizer is trained. `tokjob train` alone reads it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from tokenization_worker.api.manifest.load import load_manifest
from tokenization_worker.api.metadata import JobMeta
from tokenization_worker.api.output import OutputUri
from tokenization_worker.api.source import Documents, Source
from tokenization_worker.api.tokenizer import TokenText
from tokenization_worker.api.types.fields import BYTE_TOKENS, LimitValue, Quantity, VocabularySizes, require_sign
from tokenization_worker.api.types.model import Rule, SpecBlock

_HOLDOUT = r"^([0-9]{1,2}(\.[0-9]{1,12})?)%$"


class TrainingPattern(StrEnum):
    """How text is cut into pieces, inside of which merges happen."""

    GPT2 = "Gpt2"
    CL100K = "Cl100k"
    LLAMA3 = "Llama3"
    O200K = "O200k"


class TrainingAlgorithm(StrEnum):
    """How a vocabulary is made of counted pieces, and what reads it."""

    BPE = "BPE"
    UNIGRAM = "Unigram"
    SENTENCEPIECE_BPE = "SentencePieceBPE"


class TokenLayout(StrEnum):
    """Which ids tokens have."""

    GPT2 = "Gpt2"
    BYTES_FIRST = "BytesFirst"


class Ties(StrEnum):
    """Which of two pairs that are equally frequent is merged first."""

    LOWEST_IDS = "LowestIds"
    LARGEST_TEXT = "LargestText"


HoldoutShare = Annotated[
    str,
    BeforeValidator(require_sign),
    StringConstraints(min_length=1, max_length=16),
    Rule(
        "write a percentage below 100%, such as 1%, or 0% for none",
        cel=f"self.matches(r'{_HOLDOUT}')",
        holds=lambda share: bool(re.fullmatch(_HOLDOUT, share)),
    ),
]


class TrainedTokenizer(SpecBlock):
    """The tokenizer that is trained."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "pattern names a known pattern and regex is one of your own: leave one of them out",
            cel="!(has(self.pattern) && has(self.regex))",
            holds=lambda t: t.pattern is None or t.regex is None,
            field="regex",
        ),
        Rule(
            "layout is for algorithm: BPE; a SentencePiece model has an order of its own: leave it out",
            cel=None,
            holds=lambda t: t.algorithm is TrainingAlgorithm.BPE or t.layout is TokenLayout.GPT2,
            field="layout",
        ),
        Rule(
            "ties is for algorithm: BPE; the package sentencepiece has an order of its own: leave it out",
            cel=None,
            holds=lambda t: t.algorithm is TrainingAlgorithm.BPE or t.ties is Ties.LOWEST_IDS,
            field="ties",
        ),
        Rule(
            f"the {BYTE_TOKENS} bytes and specialTokens need more tokens than vocabSize has: raise vocabSize",
            cel=None,
            holds=lambda t: t.vocab_sizes[0] >= BYTE_TOKENS + len(t.special_tokens),
            field="vocabSize",
        ),
    )

    algorithm: TrainingAlgorithm = Field(
        default=TrainingAlgorithm.BPE,
        description="How the vocabulary is made of the counted pieces. BPE: byte-pair encoding over bytes, for the "
        "libraries tokenizers and tiktoken. Unigram, SentencePieceBPE: a model of the package sentencepiece.",
        examples=["Unigram"],
    )
    vocab_size: VocabularySizes = Field(
        description="How many tokens the tokenizer has: 256 bytes, merges, and specialTokens. A list, such as [8000, "
        "16000, 32000], gives a tokenizer of each size, in a folder of that name.",
        examples=[32000],
    )
    pattern: TrainingPattern | None = Field(
        default=None,
        description="How text is cut into pieces before it is counted; no token crosses a piece: as the tokenizer of "
        "that name cuts it. Llama3 is the pattern of Cl100k. Absent, and without regex: Gpt2.",
        examples=["Cl100k"],
    )
    regex: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description="In place of pattern: a regular expression of your own, as the library tokenizers takes it. "
        "Counting is about 30 times slower with one.",
        examples=[r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"],
    )
    special_tokens: Annotated[
        list[TokenText],
        Rule(
            "a special token stands in it twice: write it once",
            cel="self.all(t, self.exists_one(u, u == t))",
            holds=lambda tokens: len(set(tokens)) == len(tokens),
        ),
    ] = Field(
        default=["<|endoftext|>"],
        min_length=1,
        max_length=256,
        description="Tokens that no text becomes, with ids of their own. Where text spells one it ends a piece, and is "
        "not counted. The first one is the delimiter of documents.",
        examples=[["<|endoftext|>", "<|pad|>"]],
    )
    layout: TokenLayout = Field(
        default=TokenLayout.GPT2,
        description="Which ids tokens have. Gpt2: bytes in GPT-2's order, merges, specialTokens. BytesFirst: bytes by "
        "value, specialTokens from 256, merges.",
        examples=["BytesFirst"],
    )
    ties: Ties = Field(
        default=Ties.LOWEST_IDS,
        description="Which of two pairs that are equally frequent is merged first. LowestIds: the one with the lowest "
        "(left id, right id), as Hugging Face's trainer does. LargestText: the one with the largest (left bytes, right "
        "bytes).",
        examples=["LargestText"],
    )

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """All sizes, the smallest first."""
        return tuple(self.vocab_size) if isinstance(self.vocab_size, list) else (self.vocab_size,)


class TrainingOutput(SpecBlock):
    """Where the tokenizer goes."""

    uri: OutputUri = Field(
        description="The folder for tokenizer.json, counts.npz and index.json.", examples=["gs://tokens/en32k"]
    )


class TrainingSpec(SpecBlock):
    """From which text a tokenizer is trained, and how."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a group of a training has a share: there is no tokenizer yet by which tokens could be counted",
            cel="!has(self.source.groups) || self.source.groups.all(g, !has(g.tokens))",
            holds=lambda s: all(group.tokens is None for group in s.source.groups or ()),
            field="source.groups",
        ),
    )

    source: Source = Field(description="The text, as a job has it. The shares of groups are the mixture.")
    documents: Documents = Field(default=Documents(), description="Which documents are usable.")
    holdout: HoldoutShare = Field(
        default="1%",
        description="The share of documents, chosen by a hash of the text, that is not counted. Some of them are kept "
        "beside the tokenizer, to measure it on text that it has not seen.",
        examples=["0%"],
    )
    tokenizer: TrainedTokenizer = Field(description="The tokenizer that is trained.")
    output: TrainingOutput = Field(description="Where the tokenizer goes.")
    max_quarantined: LimitValue = Field(
        default="0.1%",
        description="How many documents may be unusable: a count, or a percentage of the documents read and of their "
        "bytes.",
        examples=[100],
    )
    max_corrupt_files: LimitValue = Field(
        default=0,
        description="How many corrupt files may be left out: a count, or a percentage of the files.",
        examples=["1%"],
    )
    range_bytes: Quantity = Field(
        default="256Mi",
        description="The stored bytes of one range, the unit of work and retry. It does not change the result.",
        examples=["64Mi"],
    )


class TokenizerTraining(SpecBlock):
    """A text corpus and the tokenizer to train on it."""

    help_command: ClassVar[str] = "tokjob train --help"

    api_version: Literal["tokenization.dev/v1alpha1"]
    kind: Literal["TokenizerTraining"]
    metadata: JobMeta
    spec: TrainingSpec = Field(description="From which text a tokenizer is trained, and how.")

    @classmethod
    def from_yaml(cls, path_or_text: str | Path) -> TokenizerTraining:
        """Read a manifest as `TokenizationJob.from_yaml` does."""
        return load_manifest(cls, path_or_text)
