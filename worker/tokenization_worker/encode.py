"""From texts to tokens with delimiters, checked. Pure but for the engines it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.tokenizers.base import Encoded, Engine, KillsEngine
from tokenization_worker.tokenizers.sample import is_sampled


class EncodedDocuments(NamedTuple):
    """`tokens` u16/u32[n_tokens] with delimiters, `lengths` u32[n_docs] (delimiter included), samples compared."""

    tokens: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint32]
    samples: int


class EngineMismatch(Exception):
    """The accelerated engine and the reference disagree on a document."""

    def __init__(self, document: int, found: list[int], expected: list[int]) -> None:
        super().__init__(document, len(found), len(expected))
        self.document = document
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes documents with one engine, and a sample of them with the reference as well."""

    engine: Engine
    reference: Engine
    vocab_size: int
    delimiter_id: int | None
    position: DelimiterPosition
    dtype: np.dtype[np.unsignedinteger]
    sample_one_in: int

    def encode(self, texts: Sequence[str], positions: NDArray[np.int64], files: NDArray[np.int64]) -> EncodedDocuments:
        """Tokens of `texts`; `positions` and `files` i64[n_docs] say where each one stands in the source.

        Raises `EngineMismatch` with the number of the document, and `SpecError("TokenizerUnsafe")` if the
        delimiter came out of ordinary text. An isolated engine raises `KillsEngine`, with the same number.
        """
        encoded = self.engine.encode(texts)
        self._check_ids(texts, encoded)
        samples = self._compare_samples(texts, encoded, positions, files)
        tokens, lengths = self._delimit(*encoded)
        return EncodedDocuments(tokens, lengths, samples)

    def _check_ids(self, texts: Sequence[str], encoded: Encoded) -> None:
        """Raise for an id that cannot be; where the reference gives others, it is the engine that is wrong."""
        ids = encoded.ids
        if not len(ids):
            return
        largest = int(ids.max())
        delimiter = self.vocab_size if self.delimiter_id is None else self.delimiter_id
        if largest < min(delimiter, self.vocab_size):
            return  # as a rule the delimiter is the largest id, and one look at the largest found is enough
        is_delimiter = ids == delimiter
        if largest < self.vocab_size and not is_delimiter.any():
            return
        if self.engine is not self.reference:
            place = int(ids.argmax() if largest >= self.vocab_size else is_delimiter.argmax())
            self._compare(int(np.searchsorted(encoded.ends, place, side="right")), texts, encoded)
        if largest >= self.vocab_size:
            raise TokenizationError(
                "TokenizerBroken",
                f"engine {self.engine.name} produced id {largest}; the vocabulary has {self.vocab_size}",
            )
        raise SpecError(
            "TokenizerUnsafe",
            f"the tokenizer turns ordinary text into the delimiter (id {self.delimiter_id}), so document "
            "borders would be ambiguous",
            next_step="choose another tokenizer.delimiter.token",
        )

    def _compare_samples(
        self, texts: Sequence[str], encoded: Encoded, positions: NDArray[np.int64], files: NDArray[np.int64]
    ) -> int:
        if self.engine is self.reference:
            return 0
        chosen = np.flatnonzero(is_sampled(positions, files, self.sample_one_in)).tolist()
        for document in chosen:
            self._compare(document, texts, encoded)
        return len(chosen)

    def _compare(self, document: int, texts: Sequence[str], encoded: Encoded) -> None:
        start = int(encoded.ends[document - 1]) if document else 0
        found = encoded.ids[start : int(encoded.ends[document])]
        try:
            expected = self.reference.encode([texts[document]]).ids
        except KillsEngine as kill:
            raise KillsEngine(document, kill.detail) from kill
        if not np.array_equal(found, expected):
            raise EngineMismatch(document, found.tolist(), expected.tolist())

    def _delimit(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.uint32]]:
        n_docs = len(ends)
        lengths = np.diff(ends, prepend=0)
        if self.position == DelimiterPosition.NONE or self.delimiter_id is None:
            return ids.astype(self.dtype, copy=False), lengths.astype(np.uint32)
        places = ends + np.arange(n_docs)  # after each document, counting the delimiters before it
        if self.position == DelimiterPosition.BEFORE:
            places = places - lengths
        # One boolean mask: 0.45 to 0.6 ns a token for any document length, where a copy per document takes
        # 0.4 ns for long ones and 8 ns for documents of 50 tokens (2026-11-21, EPYC).
        tokens = np.empty(len(ids) + n_docs, dtype=self.dtype)
        is_text = np.ones(len(tokens), dtype=bool)
        is_text[places] = False
        tokens[places] = self.delimiter_id
        tokens[is_text] = ids
        return tokens, (lengths + 1).astype(np.uint32)
