"""Pieces of text with counts, without a corpus."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenization_worker.training.pieces import Pieces


def pieces_of(counts: Mapping[bytes, int]) -> Pieces:
    """The pieces in the order of their bytes."""
    items = sorted(counts.items())
    ends = np.cumsum([len(piece) for piece, _ in items], dtype=np.int64)
    text = np.frombuffer(b"".join(piece for piece, _ in items), np.uint8)
    return Pieces(text, ends, np.array([count for _, count in items], np.int64))
