"""Writes a SentencePiece model, held against its own library before it counts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.output import layout
from tokenization_worker.run.training.export import HELD_OUT, SOUPS, Exported, place_file, require_lossless, spec_of
from tokenization_worker.run.training.make import Model
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.sentencepiece_engine import load_sentencepiece

_SPACE_SIGN = "\u2581"
"""Stands for a space in a model, and comes back as one."""


def write_model(store: Store, data: TrainingData, model: Model, held_out: Sequence[str], folder: str) -> Exported:
    """Write `tokenizer.model` into `folder`, "" or with a slash at its end. `held_out`: texts to try it on."""
    file = f"{folder}{layout.MODEL}"
    tokenizer = load_sentencepiece(spec_of(store, data, file), f"{store.uri}/{file}", model)
    texts = [*_soups(tokenizer), *held_out[:HELD_OUT]]
    expected = [text.replace(_SPACE_SIGN, " ") for text in texts]
    require_lossless(tokenizer.decode, expected, _encode(tokenizer, texts))
    return Exported(tokenizer, file, {file: place_file(store, file, model)})


def _soups(tokenizer: Tokenizer) -> Iterator[str]:
    """Texts of random tokens, and of characters in every class."""
    numbers = random.Random(0)
    first = len(tokenizer.special_tokens) + 1
    for _ in range(SOUPS):
        yield tokenizer.decode(numbers.choices(range(first, tokenizer.vocab_size), k=6)).replace("\ufffd", "")
    for point in (*range(0x800), *range(0x800, 0xD800, 0x100), *range(0xE000, 0x110000, 0x1000)):
        yield f"a{chr(point)} {chr(point)}{chr(point)}1 "


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    ids, ends = tokenizer.reference.encode(texts)
    start = 0
    for end in ends.tolist():
        yield ids[start:end].tolist()
        start = end
