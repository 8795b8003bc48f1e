"""Which documents are encoded a second time, by the reference, while a run uses the accelerated engine.

The choice depends on the document alone, so that it is the same for every cut of the work and every rerun.

What a sample sees: let the engines differ on a fraction `p` of the documents, spread without regard to the
hash. Of `n` documents about `n / one_in` are compared, each of them differs with probability `p`, and

    P(at least one mismatch is seen) = 1 - (1 - p / one_in) ** n  ~  1 - exp(-n * p / one_in)

so what counts is the number `m = n * p` of documents that differ: with one in 1024, m = 1024 are noticed with
probability 63 %, m = 3,100 with 95 %, m = 4,700 with 99 %, and a single one with 0.1 %. Turned around: a run
that has compared `c` documents and seen no mismatch says with 95 % confidence that fewer than `3 / c` of the
documents differ (the rule of three). Documents that are equal in length and in their first 256 characters are
chosen together: for them `m` counts the distinct ones.
"""

from __future__ import annotations

import zlib

DEFAULT_ONE_IN = 1024
"""One document in this many: at 15 against 220 MB/s the comparison costs 1.4 % of the encoding time."""


def is_sampled(text: str, one_in: int = DEFAULT_ONE_IN) -> bool:
    """Whether the document is encoded by the reference as well; about one in `one_in` is (1: every one)."""
    return zlib.crc32(text[:256].encode(errors="surrogatepass"), len(text) & 0xFFFFFFFF) % one_in == 0
