"""Trains a SentencePiece model from counted pieces: Unigram, or SentencePiece's own BPE.

The package sentencepiece learns from each piece with its count, so no token is learned across a border of pieces. But
the model itself knows no pattern: it encodes a text as a whole, and may use a token across such a border, where the
same characters stand in one piece elsewhere.

All text comes back from its tokens, since characters without a token become bytes. One exception is SentencePiece's
own: U+2581 comes back as a space, for which it stands in a model.

The same pieces give the same bytes, for one version of the package: the order of the trainer's sums depends on its
number of threads alone, which is fixed. A training draws no random numbers, and a model has neither paths nor times.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np

from tokenization_worker.tokenizers.base import require_extra
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.sentencepiece_models.model_file import rename_pieces
from tokenization_worker.training.sentencepiece_models.training_input import (
    choose_coverage,
    choose_stand_ins,
    count_characters,
    write_lines,
)

UNIGRAM, BPE = "Unigram", "SentencePieceBPE"

_UNKNOWN = "<unk>"
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

_THREADS = {UNIGRAM: 16, BPE: 1}
"""Part of the model: Unigram's scores differ in their last digits with it. 16 threads took as long as 2 on 2 cores, and
for BPE as long as 1 (2026-11-29)."""

_MOST_SEEDS, _LEAST_SEEDS, _SEEDS_A_TOKEN = 1_000_000, 100_000, 8
"""With how many texts Unigram begins. 8 for each token gave as many bytes a token as a million, in 2/3 of the time."""

_SEED_TEXT = 500 << 20
"""Unigram looks for its first texts in all text, each piece as often as it was counted, in parts of so many bytes."""

_OPTIONS: dict[str, Any] = {
    "input_format": "tsv",
    "max_sentence_length": 1 << 30,
    # Text is not changed: no NFKC, no space in front, no space less.
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    # The pattern has cut the text: what it leaves in one piece may become one token.
    "split_by_whitespace": False,
    "split_by_unicode_script": False,
    "split_by_number": False,
    "split_digits": False,
    "allow_whitespace_only_pieces": True,
    # 64 characters gave as many bytes a token, and took Unigram 3 times as long.
    "max_sentencepiece_length": 16,
    "hard_vocab_limit": True,
    "unk_id": 0,
    "unk_piece": _UNKNOWN,
    "bos_id": -1,
    "pad_id": -1,
    "minloglevel": 3,  # only what ends the process
}


class VocabularyTooLarge(Exception):
    """The text has no tokens for such a vocabulary; `largest` is the one that it has tokens for, where it has any."""

    def __init__(self, largest: int | None) -> None:
        super().__init__(largest)
        self.largest = largest


class VocabularyTooSmall(Exception):
    """The tokens that each model has, and the frequent characters of this text, are more: `least`."""

    def __init__(self, least: int) -> None:
        super().__init__(least)
        self.least = least


def memory_needed(pieces: Pieces, algorithm: str, vocab_size: int) -> int:
    """About how many bytes a training on these pieces takes at its peak."""
    text = len(pieces.text)
    characters = int(np.count_nonzero((pieces.text & 0xC0) != 0x80))
    needed = 64 * characters + 200 * len(pieces)
    if algorithm == UNIGRAM:
        part = min(_SEED_TEXT, _whole_text(pieces))
        needed = max(needed, 13 * part + 100 * len(pieces)) + 300 * _seeds(vocab_size)
    return needed + 3 * text + (64 << 20)


def _whole_text(pieces: Pieces) -> int:
    """Bytes of the text that was counted, as the trainer has it: three for a space, one behind each piece."""
    spaces = np.add.reduceat(pieces.text == 0x20, pieces.starts, dtype=np.int64)
    sizes = np.diff(pieces.ends, prepend=0) + 2 * spaces + 1
    return int(pieces.counts @ sizes)


def _seeds(vocab_size: int) -> int:
    return min(_MOST_SEEDS, max(_LEAST_SEEDS, _SEEDS_A_TOKEN * vocab_size))


def clashing_names(special_tokens: tuple[str, ...]) -> list[str]:
    """Special tokens that have the name of a token of each model: its unknown one, or a byte."""
    return [token for token in special_tokens if token == _UNKNOWN or token in _BYTES]


def load_trainer(algorithm: str) -> Any:
    """The package's trainer; raises `SpecError` where the package is not installed."""
    try:
        import sentencepiece
    except ImportError as error:
        raise require_extra("sentencepiece", "sentencepiece", f"tokenizer.algorithm: {algorithm}") from error
    return sentencepiece.SentencePieceTrainer


def train_sentencepiece(pieces: Pieces, algorithm: str, vocab_size: int, special_tokens: tuple[str, ...]) -> bytes:
    """The file of the model, a `tokenizer.model`; `pieces` are sorted. Ids: unknown 0, special tokens, bytes, others.

    Takes minutes, in which this process answers no signal. Raises `VocabularyTooLarge`, `VocabularyTooSmall`, and
    `SpecError` where the package is not installed. Special tokens are control symbols: no text becomes one.
    """
    trainer = load_trainer(algorithm)
    reserved = 1 + len(special_tokens) + len(_BYTES)
    characters = count_characters(pieces)
    if len(characters) == 0:
        raise VocabularyTooLarge(None)
    stand_ins = choose_stand_ins(pieces, special_tokens)
    model = BytesIO()
    try:
        trainer.train(
            sentence_iterator=write_lines(pieces, stand_ins),
            model_writer=model,
            model_type={UNIGRAM: "unigram", BPE: "bpe"}[algorithm],
            vocab_size=vocab_size,
            # The first one separates documents: it is the end of text also for those who know the model alone.
            eos_id=1 if special_tokens else -1,
            eos_piece=special_tokens[0] if special_tokens else "</s>",
            control_symbols=list(special_tokens[1:]),
            character_coverage=choose_coverage(characters, (vocab_size - reserved) // 2),
            num_threads=_THREADS[algorithm],
            seed_sentencepiece_size=_seeds(vocab_size),
            **_OPTIONS,
        )
    except RuntimeError as error:
        raise _explain(error) from error
    return rename_pieces(model.getvalue(), {stand_in: character for character, stand_in in stand_ins.items()})


def _explain(error: RuntimeError) -> Exception:
    """What the trainer says of the size of the vocabulary, as one of our exceptions; all else as it is."""
    if found := re.search(r"Vocabulary size too high .* value <= (\d+)", str(error)):
        return VocabularyTooLarge(int(found[1]))
    if found := re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return VocabularyTooSmall(int(found[1]))
    return error
