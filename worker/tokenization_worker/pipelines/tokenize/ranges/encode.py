"""Encodes texts to tokens with delimiters, checked. Pure but for its engines.

Checked are the ids of all documents, their bytes where the tokenizer may leave text out, and a sample of the documents:
each is encoded by the reference as well, and turned back into its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import Delimiters
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.tokenizers.base import Encoded, Engine, EngineMismatch, KillsEngine, LengthArray
from tokenization_worker.tokenizers.checks.sample import is_sampled


class EncodedDocuments(NamedTuple):
    """`tokens` u16/u32[n_tokens] with delimiters, `lengths` u32[n_docs] (delimiter included), samples compared."""

    tokens: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint32]
    samples: int


class LosesText(Exception):
    """The tokens of a document stand for `kept`, which is not its text."""

    def __init__(self, document: int, kept: bytes) -> None:
        super().__init__(document, len(kept))
        self.document = document
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes documents with one engine, and a sample of them with the reference as well.

    `restore`, `byte_lengths`, `drop`, `normalize`: as the tokenizer has them.
    """

    engine: Engine
    reference: Engine
    vocab_size: int
    delimiters: Delimiters
    dtype: np.dtype[np.unsignedinteger]
    sample_one_in: int
    restore: Callable[[Sequence[int]], bytes] | None = None
    byte_lengths: LengthArray | None = None
    drop: Callable[[str], str] | None = None
    normalize: Callable[[str], str] | None = None

    def encode(self, texts: Sequence[str], positions: NDArray[np.int64], files: NDArray[np.int64]) -> EncodedDocuments:
        """Tokens of `texts`; `positions` and `files` i64[n_docs] say where each one stands in the source.

        Raises `EngineMismatch` and `LosesText` with the number of the document, and `SpecError("TokenizerUnsafe")` if
        a delimiter came out of ordinary text. An isolated engine raises `KillsEngine`, with the same number.
        """
        encoded = self.engine.encode(texts)
        self._check_ids(texts, encoded)
        self._check_kept(texts, self._check_bytes(texts, encoded))
        samples = self._compare_samples(texts, encoded, positions, files)
        tokens, lengths = self._delimit(*encoded)
        return EncodedDocuments(tokens, lengths, samples)

    def _check_ids(self, texts: Sequence[str], encoded: Encoded) -> None:
        """Raise for an id that cannot be; where the reference gives others, it is the engine that is wrong."""
        ids = encoded.ids
        if not len(ids):
            return
        largest = int(ids.max())
        if largest < min((*self.delimiters.ids, self.vocab_size)):
            return  # usually no other id is above the delimiters': one comparison is enough
        is_delimiter = np.zeros(len(ids), dtype=bool)
        for delimiter in self.delimiters.ids:
            is_delimiter |= ids == delimiter
        if largest < self.vocab_size and not is_delimiter.any():
            return
        place = int(ids.argmax() if largest >= self.vocab_size else is_delimiter.argmax())
        self._compare(int(np.searchsorted(encoded.ends, place, side="right")), texts, encoded)
        if largest >= self.vocab_size:
            raise TokenizationError(
                "TokenizerBroken",
                f"engine {self.engine.name} produced id {largest}; the vocabulary has {self.vocab_size}",
            )
        raise SpecError(
            "TokenizerUnsafe",
            f"the tokenizer turns ordinary text into a delimiter (id {ids[place]}), so document borders would be "
            "ambiguous",
            next_step="choose another token for tokenizer.delimiter",
        )

    def _check_bytes(self, texts: Sequence[str], encoded: Encoded) -> Sequence[int]:
        """The documents whose tokens do not have as many bytes as their texts; all where that is not known. Raises for
        the first one of a tokenizer that restores.

        Pieces that a pattern cuts never overlap, so a text can only get shorter: equal sums prove each document.
        One gather: 0.8 ns a token with cl100k's vocabulary, where a pattern of one's own takes 50 ns to encode it
        with the fast engine and 65 ns with tiktoken (mixed scripts, 1.8 bytes a token, 2026-11-24, EPYC).
        """
        if self.byte_lengths is None:
            return range(len(texts))
        wanted = texts if self.normalize is None else list(map(self.normalize, texts))
        lengths = self.byte_lengths.take(encoded.ids)
        if int(lengths.sum(dtype=np.int64)) == count_bytes(wanted):
            return ()
        sums = np.cumsum(np.append(0, lengths), dtype=np.int64)[np.append(0, encoded.ends)]
        sizes = [count_bytes([text]) for text in wanted]
        documents: list[int] = np.flatnonzero(np.diff(sums) != sizes).tolist()
        if self.restore is not None:
            self._compare(documents[0], texts, encoded)
            self._require_kept(documents[0], texts, encoded)
        return documents

    def _check_kept(self, texts: Sequence[str], doubtful: Sequence[int]) -> None:
        """Raise for the first of the doubtful documents whose tokens do not hold all of its text.

        7 ns a character of English where each character is looked at once, and some 700 ns where each piece is; the
        library takes 300 ns to encode it (2026-11-28, EPYC).
        """
        if self.drop is None:
            return
        for document in doubtful:
            try:
                kept = self.drop(texts[document])
            except KillsEngine as kill:
                raise KillsEngine(document, kill.detail) from kill
            if kept != texts[document]:
                raise LosesText(document, kept.encode())

    def _compare_samples(
        self, texts: Sequence[str], encoded: Encoded, positions: NDArray[np.int64], files: NDArray[np.int64]
    ) -> int:
        """Compare and restore the sampled documents; returns how many were compared with another engine's tokens."""
        is_other = self.engine is not self.reference
        if not is_other and self.restore is None:
            return 0
        chosen = np.flatnonzero(is_sampled(positions, files, self.sample_one_in)).tolist()
        for document in chosen:
            self._compare(document, texts, encoded)
            self._require_kept(document, texts, encoded)
        return len(chosen) if is_other else 0

    def _require_kept(self, document: int, texts: Sequence[str], encoded: Encoded) -> None:
        """Raise `LosesText` unless the document's tokens are its bytes, of a tokenizer that restores."""
        if self.restore is None:
            return
        kept = self.restore(_ids_of(document, encoded).tolist())
        if kept != texts[document].encode():
            raise LosesText(document, kept)

    def _compare(self, document: int, texts: Sequence[str], encoded: Encoded) -> None:
        """Raise `EngineMismatch` where the reference gives other tokens than the engine, if that is another one."""
        if self.engine is self.reference:
            return
        found = _ids_of(document, encoded)
        try:
            expected = self.reference.encode([texts[document]]).ids
        except KillsEngine as kill:
            raise KillsEngine(document, kill.detail) from kill
        if not np.array_equal(found, expected):
            raise EngineMismatch(document, found.tolist(), expected.tolist())

    def _delimit(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.uint32]]:
        lengths = np.diff(ends, prepend=0)
        begin, end, count = self.delimiters.begin, self.delimiters.end, len(self.delimiters.ids)
        if not count:
            return ids.astype(self.dtype, copy=False), lengths.astype(np.uint32)
        begins = ends - lengths + count * np.arange(len(ends))  # counting the delimiters of the documents before
        # One boolean mask: 0.45 to 0.6 ns a token for any document length, where a copy per document takes
        # 0.4 ns for long ones and 8 ns for documents of 50 tokens (2026-11-21, EPYC).
        tokens = np.empty(len(ids) + count * len(ends), dtype=self.dtype)
        is_text = np.ones(len(tokens), dtype=bool)
        for delimiter, places in ((begin, begins), (end, begins + lengths + (count - 1))):
            if delimiter is not None:
                is_text[places] = False
                tokens[places] = delimiter
        tokens[is_text] = ids
        return tokens, (lengths + count).astype(np.uint32)


def count_bytes(texts: Sequence[str]) -> int:
    """Of all texts as UTF-8. Once an engine has asked for that form, CPython keeps it, and encode() is a plain copy."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def _ids_of(document: int, encoded: Encoded) -> NDArray[np.uint32]:
    start = int(encoded.ends[document - 1]) if document else 0
    return encoded.ids[start : int(encoded.ends[document])]
