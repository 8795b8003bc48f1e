"""Makes blocks of packed rows, and windows of a shuffle, so small that a small source has many."""

from __future__ import annotations

import pytest

from tokenization_worker.planning import scattering
from tokenization_worker.sequences import best_fit
from tokenization_worker.verification.shards import packing


def shrink_blocks(patch: pytest.MonkeyPatch, tokens: int) -> None:
    """In this process, a block has so many tokens at most, and a window of a shuffle is two or three blocks."""
    patch.setattr(scattering, "LEAST_WINDOW_BYTES", 20 * tokens)
    for module in (best_fit, packing):
        patch.setattr(module, "LEAST_BLOCK", tokens)
        patch.setattr(module, "MOST_BLOCK", tokens)
