"""Cuts documents off behind so many tokens. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def truncate_documents(
    tokens: NDArray[np.unsignedinteger], lengths: NDArray[np.uint32], longest: int
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.uint32], NDArray[np.uint32]]:
    """`tokens` u16/u32[n_tokens] and `lengths` u32[n_docs] of which no document has more than `longest` tokens, and
    u32[n_docs]: how many were cut off from each."""
    kept = np.minimum(lengths, np.uint32(longest))
    ends = np.cumsum(lengths, dtype=np.int64)
    steps = np.zeros(len(tokens) + 1, np.int8)
    is_cut = lengths > kept
    steps[ends[is_cut] - lengths[is_cut] + kept[is_cut]] += 1
    steps[ends[is_cut]] -= 1
    return tokens[np.cumsum(steps[:-1], dtype=np.int8) == 0], kept, lengths - kept
