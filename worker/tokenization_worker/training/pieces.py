"""Distinct pieces of text with their counts, as arrays; how they are sorted, stored and identified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.ordering import join, order_of

_ARRAYS = {"text": "<u1", "ends": "<i8", "counts": "<i8"}


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """`text` u8[n_bytes]: the UTF-8 of all pieces, one behind the other; `ends` i64[n]: of each in it; `counts` i64[n].

    No piece is empty, and none stands in it twice.
    """

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each piece begins, i64[n]."""
        starts: NDArray[np.int64] = np.concatenate([np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]])
        return starts

    @property
    def total(self) -> int:
        """Pieces of the text, each as often as it was counted."""
        return int(self.counts.sum())

    def __len__(self) -> int:
        return len(self.ends)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Each piece with its count, in order."""
        text, start = self.text.tobytes(), 0
        for end, count in zip(self.ends.tolist(), self.counts.tolist(), strict=True):
            yield text[start:end], count
            start = end

    def sort(self) -> Pieces:
        """The same pieces in the order of their bytes."""
        starts = self.starts
        order = order_of(self.text, starts, self.ends)
        text, ends = join(self.text, starts[order], self.ends[order])
        return Pieces(text, ends, self.counts[order])

    def digest(self) -> str:
        """Identifies what was counted, SHA-256 in hexadecimal digits; of sorted pieces."""
        digest = sha256()
        for name, dtype in _ARRAYS.items():
            digest.update(getattr(self, name).astype(dtype, copy=False).tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """A file for `numpy.load`, with the arrays by their names."""
        file = BytesIO()
        arrays = ((name, getattr(self, name).astype(dtype, copy=False)) for name, dtype in _ARRAYS.items())
        np.savez(file, **dict(arrays))
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises `ValueError` where the bytes are not as `to_bytes` made them."""
        try:
            with np.load(BytesIO(data), allow_pickle=False) as arrays:
                pieces = cls(*(arrays[name] for name in _ARRAYS))
        except Exception as error:  # zipfile and numpy have a dozen kinds for bytes that are cut or changed
            raise ValueError(f"it is no table of pieces: {type(error).__name__}: {error}") from error
        if len(pieces.ends) != len(pieces.counts) or (pieces.ends[-1] if len(pieces) else 0) != len(pieces.text):
            raise ValueError("the arrays of its pieces do not fit together")
        return pieces
