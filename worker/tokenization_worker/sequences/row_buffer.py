"""Gathers runs of tokens until they are whole rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.sequences.parts import NO_PARTS, PartArray, Pieces, cut_into_rows


class Rows(NamedTuple):
    """Whole rows: `tokens` u16/u32[n x length], and the parts of these rows, whose numbers count in the shard."""

    tokens: NDArray[np.unsignedinteger]
    parts: PartArray


class RowBuffer:
    """A shard's rows in order. Holds less than one row beside what was added last."""

    def __init__(self, length: int, dtype: np.dtype[np.unsignedinteger]) -> None:
        self._length = length
        self._dtype = dtype
        self._waiting: list[NDArray[np.unsignedinteger]] = []
        self._parts: list[PartArray] = []
        self._size = 0  # tokens that wait
        self.rows = 0  # that were taken

    def add(self, tokens: NDArray[np.unsignedinteger], pieces: Pieces) -> None:
        """Append tokens, all of which are of these pieces."""
        self._parts.append(cut_into_rows(pieces, self.rows * self._length + self._size, self._length))
        self._append(tokens)

    def add_padding(self, count: int, token: int) -> None:
        """Append `count` times the token that is in no document."""
        self._append(np.full(count, token, dtype=self._dtype))

    def _append(self, tokens: NDArray[np.unsignedinteger]) -> None:
        self._waiting.append(tokens)
        self._size += len(tokens)

    def take(self) -> Rows:
        """All rows that are whole now."""
        n_rows = self._size // self._length
        if not n_rows:
            return Rows(np.empty(0, dtype=self._dtype), NO_PARTS)
        tokens, parts = np.concatenate(self._waiting), np.concatenate(self._parts)
        end, self.rows = n_rows * self._length, self.rows + n_rows
        inside = int(np.searchsorted(parts["row"], self.rows))
        self._waiting, self._parts = [tokens[end:].copy()], [parts[inside:].copy()]
        self._size -= end
        return Rows(tokens[:end], parts[:inside])
