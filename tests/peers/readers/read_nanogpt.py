"""Batches as nanoGPT's `train.py` makes them: windows of a memory map, as int64 tensors, with targets one token on.

The windows stand at every multiple of their length, where nanoGPT draws places at random, so that all tokens come.
"""

from __future__ import annotations

import numpy as np
import torch
from report import DTYPE, files, print_split

BLOCK = 64


def read(path):  # type: ignore[no-untyped-def]
    data = np.memmap(path, dtype=DTYPE, mode="r")
    starts = torch.arange(0, len(data) - BLOCK, BLOCK)
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in starts])
    assert torch.equal(x.reshape(-1)[1:], y.reshape(-1)[:-1])
    rest = torch.from_numpy(data[len(starts) * BLOCK + 1 :].astype(np.int64))
    return torch.cat([x.reshape(-1), y[-1, -1:], rest])


print_split(map(read, files(".bin")))
