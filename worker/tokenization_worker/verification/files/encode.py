"""Encodes documents again with the reference engine, and decodes their tokens to text."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import KillsEngine
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.restoring import show_loss
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.stream import Tokens

BATCH_BYTES = 1 << 20
"""Text that is encoded at once."""

DOCUMENT_BYTES = 256
"""What a document counts besides its text: so many bytes of Python objects hold it at least, and an empty one, too."""


class Encoded(NamedTuple):
    """A document's tokens with its delimiter as far as they are written, and what its text lost, as `Expected` has it.
    `truncated`: how many tokens are not written."""

    tokens: Tokens
    lost: tuple[str, str] | None
    truncated: int = 0


class Encoder:
    """Encodes documents with the reference engine, some at a time, and turns their tokens back into text."""

    def __init__(self, facts: Facts) -> None:
        tokenizer = load_tokenizer(facts.tokenizer)
        self._engine = tokenizer.reference
        self._restore = tokenizer.restore
        self._drop = tokenizer.drop
        self._longest = facts.longest_document
        self._begin, self._end = _as_tokens(facts.begin_id), _as_tokens(facts.end_id)
        self._empty = self._complete("", np.empty(0, np.int64))  # millions of documents may be empty

    def encode(self, uri: str, positions: list[int], texts: list[str]) -> list[Encoded]:
        """Each text's tokens, and what it lost; SpecError for one of `uri` that the engine gives up on."""
        try:
            ids, ends = self._engine.encode(texts)
        except KillsEngine as kill:
            raise _cannot_encode(uri, positions[kill.document], kill.detail) from kill
        tokens, borders = ids.astype(np.int64), [0, *ends.tolist()]
        return [
            self._complete(text, tokens[start:end]) if text or start < end else self._empty
            for text, (start, end) in zip(texts, pairwise(borders), strict=True)
        ]

    def _complete(self, text: str, part: Tokens) -> Encoded:
        tokens = self._delimit(part)
        written = tokens[: self._longest]
        return Encoded(written, self._find_loss(text, part), len(tokens) - len(written))

    def _delimit(self, part: Tokens) -> Tokens:
        if len(self._begin) or len(self._end):
            return np.concatenate([self._begin, part, self._end])
        return part

    def _find_loss(self, text: str, part: Tokens) -> tuple[str, str] | None:
        if self._restore is not None:
            kept = self._restore(part.tolist())
        elif self._drop is not None:
            try:
                kept = self._drop(text).encode()
            except KillsEngine:  # the engine has encoded it: nothing shows that it is lost
                return None
        else:
            return None
        return None if kept == text.encode() else show_loss(text, kept)


def _as_tokens(token: int | None) -> Tokens:
    return np.array([] if token is None else [token], dtype=np.int64)


def _cannot_encode(uri: str, position: int, detail: str) -> SpecError:
    return SpecError(
        "TokenizerInvalid",
        f"{uri} @ {position:,}: the reference engine cannot encode this document: {detail}",
        next_step="no fault is known, but this machine cannot prove more: verify with mode checksums, or on a machine "
        "like the run's, with the run's versions",
    )
