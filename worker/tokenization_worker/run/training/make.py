"""Makes the vocabularies of a training from its counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

from tokenization_worker.api.training.manifest import Ties, TokenLayout, TrainingAlgorithm
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.events import MergesMade, TrainingModel, Watcher
from tokenization_worker.processes import free_memory
from tokenization_worker.training import merging
from tokenization_worker.training.merging import MOST_BYTES, Trainer
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.sentencepiece_models import model_trainer
from tokenization_worker.training.sentencepiece_models.model_trainer import (
    VocabularyTooLarge,
    VocabularyTooSmall,
    clashing_names,
)
from tokenization_worker.training.sentencepiece_models.training_process import train_apart
from tokenization_worker.training.vocabulary import Vocabulary, byte_ids

Model = NewType("Model", bytes)
"""The file of a SentencePiece model."""


def make_vocabularies(
    pieces: Pieces, data: TrainingData, watch: Watcher, should_stop: Callable[[], bool]
) -> dict[int, Vocabulary | Model]:
    """The vocabulary of each size: merges, or a SentencePiece model.

    Raises `SpecError("VocabTooLarge")` where the text has not so many tokens, `TrainMemory` where memory is short, and
    `Stopped` after `should_stop` returned true.
    """
    if data.algorithm is TrainingAlgorithm.BPE:
        merged = _make_merges(pieces, data, watch, should_stop)
        return {size: merged.cut(data.n_merges(size)) for size in data.vocab_sizes}
    _refuse_names(clashing_names(data.special_tokens), "each SentencePiece model has a token of its own with this name")
    return {size: _train_model(pieces, data, size, watch, should_stop) for size in data.vocab_sizes}


def _make_merges(pieces: Pieces, data: TrainingData, watch: Watcher, should_stop: Callable[[], bool]) -> Vocabulary:
    """All merges of the largest vocabulary; a smaller one has the first of them."""
    if len(pieces.text) > MOST_BYTES:
        raise SpecError(
            "TrainMemory",
            f"the distinct pieces have {len(pieces.text):,} bytes, and at most {MOST_BYTES:,} can be trained on",
            next_step="train on a sample: give the groups of the source a share",
        )
    _require_memory(pieces, merging.memory_needed(pieces))
    bytes_first = data.layout is TokenLayout.BYTES_FIRST
    ids, vocab_size = byte_ids(bytes_first=bytes_first), data.vocab_sizes[-1]
    n_merges = data.n_merges(vocab_size)
    trainer = Trainer(pieces, ids, n_merges, largest_text=data.ties is Ties.LARGEST_TEXT)
    while not trainer.is_finished:
        if should_stop():
            raise Stopped
        trainer.step()
        n_made = len(trainer.merges)
        if n_made:
            made = Vocabulary(trainer.merges, data.special_tokens, bytes_first)
            text = made.text(n_made - 1).decode("utf-8", "backslashreplace")
            watch(MergesMade(n_made, n_merges, text, int(trainer.counts[-1])))
    if len(trainer.merges) < n_merges:
        raise _too_large(vocab_size, vocab_size - n_merges + len(trainer.merges))
    vocabulary = Vocabulary(trainer.merges, data.special_tokens, bytes_first)
    _refuse_names(vocabulary.doubled_names(), "tokenizer.json calls a token of text so, too")
    return vocabulary


def _train_model(
    pieces: Pieces, data: TrainingData, vocab_size: int, watch: Watcher, should_stop: Callable[[], bool]
) -> Model:
    """The SentencePiece model of one size, trained in a process of its own."""

    def look() -> None:
        if should_stop():
            raise Stopped

    algorithm = data.algorithm.value
    _require_memory(pieces, model_trainer.memory_needed(pieces, algorithm, vocab_size))
    watch(TrainingModel(algorithm, vocab_size))
    try:
        return Model(train_apart(pieces, algorithm, vocab_size, data.special_tokens, while_waiting=look))
    except VocabularyTooLarge as error:
        raise _too_large(vocab_size, error.largest) from error
    except VocabularyTooSmall as error:
        raise SpecError(
            "SpecInvalid",
            f"tokenizer.vocabSize: bytes, special tokens and frequent characters of the text are {error.least:,} "
            f"tokens, {vocab_size:,} are asked for",
            next_step=f"ask for {error.least:,} or more; the counts are kept",
        ) from error


def _too_large(vocab_size: int, largest: int | None) -> SpecError:
    """`largest`: the size that the text has tokens for; None where it has none."""
    tokens, fewer = ("no", "") if largest is None else (f"{largest:,}", f"ask for {largest:,} or fewer, or ")
    return SpecError(
        "VocabTooLarge",
        f"tokenizer.vocabSize: the text gives {tokens} tokens, {vocab_size:,} are asked for",
        next_step=f"{fewer}give more text; the counts are kept",
    )


def _refuse_names(names: list[str], why: str) -> None:
    """Raise where special tokens have names that other tokens have."""
    if names:
        raise SpecError(
            "SpecInvalid",
            f"tokenizer.specialTokens: {names[0]!r}: {why}",
            next_step="choose another special token, such as one in <| and |>; the counts serve no other special "
            "tokens, so train at another output.uri",
        )


def _require_memory(pieces: Pieces, needed: int) -> None:
    """Raise where this machine has less memory than a training on the pieces needs."""
    free = free_memory()
    if free and needed > free:
        raise TemporaryError(
            "TrainMemory",
            f"training on {len(pieces):,} distinct pieces needs about {needed / 1e9:.1f} GB of memory; "
            f"{free / 1e9:.1f} GB are free",
            next_step="start the same command on a larger machine, which goes on from the counts; or train on a sample",
        )
