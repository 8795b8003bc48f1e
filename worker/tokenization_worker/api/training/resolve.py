"""A training, resolved: frozen values, and the keys that say whether two trainings are the same.

The **counting key** covers what was asked for of the counts: source, documents, holdout, pattern and special tokens.
The **training key** also covers the vocabulary. So a training with another size goes on from counts that are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tokenization_worker.api.data import SourceSpec, hash_end
from tokenization_worker.api.keys import canonical_source, key_of
from tokenization_worker.api.resolve import RunLimits, resolve_output_uri, resolve_source
from tokenization_worker.api.training.manifest import (
    Ties,
    TokenizerTraining,
    TokenLayout,
    TrainingAlgorithm,
    TrainingPattern,
)
from tokenization_worker.api.types.fields import BYTE_TOKENS
from tokenization_worker.api.types.quantities import Limit, parse_percentage, parse_quantity


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What a training is asked for. `pattern`: the name of a pattern, which `regex` stands in place of. `vocab_sizes`:
    ascending; `has_folders`: each size has a folder of its own, since a list was asked for."""

    source: SourceSpec
    max_document_bytes: int
    holdout: Fraction
    pattern: TrainingPattern
    regex: str | None
    special_tokens: tuple[str, ...]
    algorithm: TrainingAlgorithm
    vocab_sizes: tuple[int, ...]
    has_folders: bool
    layout: TokenLayout
    ties: Ties
    output_uri: str

    def n_merges(self, vocab_size: int) -> int:
        """How many merges fill a vocabulary."""
        return vocab_size - BYTE_TOKENS - len(self.special_tokens)

    def folder(self, vocab_size: int) -> str:
        """Where the files of one size are, below the output; "": beside the index."""
        return f"{vocab_size}/" if self.has_folders else ""

    @property
    def asked_sizes(self) -> int | list[int]:
        """The sizes as they were asked for."""
        return list(self.vocab_sizes) if self.has_folders else self.vocab_sizes[0]

    @property
    def holdout_end(self) -> int:
        """Documents whose hash is below this are held out."""
        return hash_end(self.holdout)

    def canonical(self) -> dict[str, object]:
        """What decides the counts, without the files: plain JSON values, as a plan holds them."""
        return {
            "source": canonical_source(self.source),
            "documents": {"maxBytes": self.max_document_bytes},
            "training": {
                "holdout": str(self.holdout),
                "pattern": self.pattern.value if self.regex is None else {"regex": self.regex},
                "specialTokens": list(self.special_tokens),
            },
        }

    @property
    def counting_key(self) -> str:
        """The key of what was asked for of the counts."""
        return key_of("counting", self._asked())

    @property
    def training_key(self) -> str:
        """The key of all that was asked for."""
        how = {
            "algorithm": self.algorithm.value,
            "vocabSize": self.asked_sizes,
            "layout": self.layout.value,
            "ties": self.ties.value,
        }
        return key_of("training", {**self._asked(), **how})

    def _asked(self) -> dict[str, object]:
        groups = [[group.name, list(group.uris)] for group in self.source.groups]
        return {**self.canonical(), "uris": list(self.source.uris), "groups": groups}


def resolve_training(training: TokenizerTraining) -> TrainingData:
    """Return the values of `training` with defaults, numbers and absolute paths filled in."""
    spec = training.spec
    return TrainingData(
        source=resolve_source(spec.source),
        max_document_bytes=parse_quantity(spec.documents.max_bytes),
        holdout=parse_percentage(spec.holdout),
        pattern=spec.tokenizer.pattern or TrainingPattern.GPT2,
        regex=spec.tokenizer.regex,
        special_tokens=tuple(spec.tokenizer.special_tokens),
        algorithm=spec.tokenizer.algorithm,
        vocab_sizes=spec.tokenizer.vocab_sizes,
        has_folders=isinstance(spec.tokenizer.vocab_size, list),
        layout=spec.tokenizer.layout,
        ties=spec.tokenizer.ties,
        output_uri=resolve_output_uri(spec.output.uri, None),
    )


def training_limits(training: TokenizerTraining) -> RunLimits:
    """Return the limits of `training` as numbers."""
    return RunLimits(
        max_quarantined=Limit.parse(training.spec.max_quarantined),
        max_corrupt_files=Limit.parse(training.spec.max_corrupt_files),
        range_bytes=parse_quantity(training.spec.range_bytes),
    )
