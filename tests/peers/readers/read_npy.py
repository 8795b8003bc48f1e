"""`np.load`, as nanoGPT's descendants and jaxformer load their shards."""

from __future__ import annotations

import numpy as np
from report import DTYPE, ROW_LENGTH, files, print_split


def load(path):  # type: ignore[no-untyped-def]
    tokens = np.load(path)
    assert tokens.dtype == DTYPE
    assert tokens.shape[1:] == ((ROW_LENGTH,) if ROW_LENGTH else ())
    mapped = np.load(path, mmap_mode="r")
    assert mapped.offset == 128
    assert np.array_equal(mapped, tokens)
    return tokens


print_split(map(load, files(".npy")))
