"""Every format a second time, by `struct` and numpy alone: the bytes of a shard's files, and how to read them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

Tokens = np.ndarray[Any, Any]

SUFFIXES = {"Npy": [".npy"], "Raw": [".bin"], "LlmC": [".bin"], "Megatron": [".bin", ".idx"]}


def files_of(format: str, tokens: Tokens, lengths: Sequence[int]) -> list[bytes]:
    """The files of a shard, in the order of `SUFFIXES`; `lengths`: tokens of each document in it."""
    raw = tokens.astype(tokens.dtype.newbyteorder("<")).tobytes()
    match format:
        case "Npy":
            file = BytesIO()
            np.save(file, tokens)
            return [file.getvalue()]
        case "Raw":
            return [raw]
        case "LlmC":
            magic, version = {2: (20240520, 1), 4: (20240801, 7)}[tokens.itemsize]
            return [struct.pack("<iii", magic, version, len(tokens)) + bytes(4 * 253) + raw]
        case "Megatron":
            starts = [sum(lengths[:number]) * tokens.itemsize for number in range(len(lengths))]
            code = {2: 8, 4: 4}[tokens.itemsize]
            n = len(lengths)
            head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, n, n + 1)
            return [raw, head + struct.pack(f"<{n}i{n}q{n + 1}q", *lengths, *starts, *range(n + 1))]
    raise ValueError(format)


def read_llmc(path: Path) -> Tokens:
    """As llm.c's loader does: the magic, the version, the number of tokens and the exact size of the file."""
    data = path.read_bytes()
    magic, version, count = struct.unpack_from("<iii", data)
    dtype = {(20240520, 1): "<u2", (20240801, 7): "<u4"}[magic, version]
    assert len(data) == 1024 + count * np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, count, 1024)


def read_megatron(path: Path) -> list[Tokens]:
    """The documents of `path` (without suffix), each by its pointer and its length."""
    index = path.with_name(path.name + ".idx").read_bytes()
    magic, version, code, count, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, documents) == (b"MMIDIDX\0\0", 1, count + 1)
    dtype = np.dtype({8: np.uint16, 4: np.int32}[code])
    lengths = np.frombuffer(index, "<i4", count, 34)
    pointers = np.frombuffer(index, "<i8", count, 34 + 4 * count)
    borders = np.frombuffer(index, "<i8", documents, 34 + 12 * count)
    assert len(index) == 34 + 12 * count + 8 * documents
    assert borders.tolist() == list(range(count + 1))
    data = path.with_name(path.name + ".bin").read_bytes()
    return [np.frombuffer(data, dtype, length, at) for length, at in zip(lengths, pointers, strict=True)]
