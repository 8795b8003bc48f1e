"""Tiny tokenizers of every kind, made on the spot with the libraries themselves."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenization_worker.api.data import DelimiterPosition, Delimiters, TokenizerSpec
from tokenization_worker.tokenizers.base import Encoded, Engine, Tokenizer
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.tokenizers.ranks.encodings import read_named

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "how vexingly quick daft zebras jump, isn't it? 1234 567",
    "<|endoftext|> is </s> as ordinary <s> as <sep> any other [text]",
    "zażółć gęślą jaźń, съешь же ещё этих мягких булок",
] * 20

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_spec(
    name: str | None = None,
    uri: Path | None = None,
    *,
    token: str | None = None,
    position: str = "Before",
    pattern: str | None = None,
    specials: dict[str, int] | None = None,
) -> TokenizerSpec:
    return TokenizerSpec(
        name=name,
        uri=None if uri is None else str(uri),
        pattern=pattern,
        special_tokens=tuple(sorted((specials or {}).items())),
        delimiter_token=token,
        delimiter_position=DelimiterPosition(position),
    )


ADDED_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
"""What a tokenizer.json says of a special token beside its id and content."""


def train_byte_level(added: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A byte-level BPE tokenizer.json as a dict, with these added tokens (ids from 600) and top-level changes."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    native = tokenizers.Tokenizer(models.BPE())
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    native.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=alphabet)
    native.train_from_iterator(SENTENCES, trainer)
    document: dict[str, Any] = json.loads(native.to_str())
    vocabulary = document["model"]["vocab"]
    vocabulary |= {f"<unused {k}>": k for k in range(len(vocabulary), 600)}
    document["added_tokens"] = [ADDED_FLAGS | {"id": 600 + k} | token for k, token in enumerate(added)]
    return document | changes


def write_letters(folder: Path, pre_tokenizer: Any, **changes: Any) -> Path:
    """A tokenizer.json whose vocabulary has small letters, blanks, comma and full stop alone."""
    vocabulary = {character: number for number, character in enumerate("abcdefghijklmnopqrstuvwxyz ,.\n")}
    document = {
        "version": "1.0",
        "added_tokens": [ADDED_FLAGS | {"id": 30, "content": "<|endoftext|>"}],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    } | {name: value for name, value in changes.items() if name != "model"}
    document["model"] = document["model"] | changes.get("model", {})
    return write_json(folder / "tokenizer.json", document)


def write_json(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def train_sentencepiece(path: Path, **options: Any) -> Path:
    """A SentencePiece model (BPE unless said otherwise)."""
    import sentencepiece

    model = io.BytesIO()
    settings = {"vocab_size": 400, "model_type": "bpe", "byte_fallback": True, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, minloglevel=2, **settings | options
    )
    path.write_bytes(model.getvalue())
    return path


def write_ranks(path: Path, n_tokens: int) -> Path:
    """The first `n_tokens` ranks of cl100k_base as a rank file: an encoding that nobody knows."""
    ranks = sorted(read_named("cl100k_base").ranks.items(), key=lambda item: item[1])[:n_tokens]
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks))
    return path


class WrongFor:
    """Encodes like `engine`, but flips a bit of a token where a text contains `needle`."""

    name = "wrong"

    def __init__(self, engine: Engine, needle: str) -> None:
        self._engine = engine
        self._needle = needle
        self.texts_seen = 0

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.texts_seen += len(texts)
        ids, ends = self._engine.encode(texts)
        ids = ids.copy()
        for text, end in zip(texts, ends, strict=True):
            if self._needle in text:
                ids[end - 1] ^= 1
        return Encoded(ids, ends)


def make_tokenizer(accelerated: Engine | None, *, reference: Engine | None = None, fingerprint: str = "f") -> Tokenizer:
    """A tokenizer of bytes whose accelerated engine is `accelerated`."""
    return Tokenizer(
        name="fake",
        vocab_size=257,
        special_tokens={"<|endoftext|>": 256},
        delimiters=Delimiters(256, None),
        fingerprint=fingerprint,
        libraries={"wrong": "1"},
        reference=reference or ByteEngine(),
        decode=ByteEngine().decode,
        accelerate=lambda: accelerated,
    )
