"""What llm.c's data loaders check and read. They are no package, so this is written from their source.

`llmc/dataloader.h` (GPT-2, 16 bits) and `train_llama3.py` (Llama 3, 32 bits): the magic number, the version, the
number of tokens, which is at least a batch and one; the size of the file must be exactly that of header and tokens.
Then batches of B * T + 1 tokens, each beginning at the last token of the one before.
"""

from __future__ import annotations

import struct

import numpy as np
from report import DTYPE, files, print_split

HEADER_INTS = 256
MAGIC, VERSION, FORMAT = {"uint16": (20240520, 1, "H"), "uint32": (20240801, 7, "I")}[DTYPE]
BATCH = 4 * 16


def read(path):  # type: ignore[no-untyped-def]
    with path.open("rb") as file:
        header = struct.unpack(f"<{HEADER_INTS}i", file.read(4 * HEADER_INTS))
        assert header[0] == MAGIC, "bad magic"
        assert header[1] == VERSION, "bad version"
        count = header[2]
        assert not any(header[3:])
        assert count >= BATCH + 1, "a shard must hold a batch and one token"
        size = struct.calcsize(FORMAT)
        assert path.stat().st_size == 4 * HEADER_INTS + count * size, "another size than the header says"
        tokens: list[int] = []
        for start in range(0, count - 1, BATCH):
            file.seek(4 * HEADER_INTS + start * size)
            data = file.read(min(BATCH + 1, count - start) * size)
            batch = struct.unpack(f"<{len(data) // size}{FORMAT}", data)
            assert tokens[start:] in ([], [batch[0]])
            tokens[start:] = batch
    return np.array(tokens)


print_split(map(read, files(".bin")))
