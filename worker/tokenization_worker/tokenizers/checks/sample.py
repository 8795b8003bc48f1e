"""Selects the documents that the reference encodes a second time, while a run uses the accelerated engine.

The choice depends on the document's place in the source alone, so that it is the same for every cut of the work,
every engine and every rerun. (A hash of the text itself, in Python, costs 0.5 us: more than encoding a short
document does. Hashing places is one vector operation for a whole batch.)

What a sample sees: let the engines differ on a fraction `p` of the documents, spread without regard to the
hash. Of `n` documents about `n / one_in` are compared, each of them differs with probability `p`, and

    P(at least one mismatch is seen) = 1 - (1 - p / one_in) ** n  ~  1 - exp(-n * p / one_in)

so what counts is the number `m = n * p` of documents that differ: with one in 1024, m = 1024 are noticed with
probability 63 %, m = 3,100 with 95 %, m = 4,700 with 99 %, and a single one with 0.1 %. Turned around: a run
that has compared `c` documents and seen no mismatch says with 95 % confidence that fewer than `3 / c` of the
documents differ (the rule of three).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAMPLE_ONE_IN = 1024
"""One document in this many: at 15 against 220 to 420 MB/s (2026-11-21) the comparison costs 1.4 to 2.7 % of the
encoding time."""


def is_sampled(positions: NDArray[np.int64], files: NDArray[np.int64], one_in: int) -> NDArray[np.bool_]:
    """Which documents to compare, bool[n_docs]: about one in `one_in` (1: every one).

    `positions`, `files` int64[n_docs]: place in the file, and the file's number. Mixed with the finalizer of
    splitmix64 (Steele, Lea, Flood 2014), whose arithmetic is modulo 2**64.
    """
    with np.errstate(over="ignore"):
        x = positions.astype(np.uint64) + (files.astype(np.uint64) << np.uint64(40))
        x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    sampled: NDArray[np.bool_] = x % np.uint64(one_in) == 0
    return sampled
