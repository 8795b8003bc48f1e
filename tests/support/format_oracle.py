"""Every format a second time, by `struct` and numpy alone: the bytes of a shard's files, and how to read them."""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

Tokens = np.ndarray[Any, Any]

SUFFIXES = {
    "Npy": [".npy"],
    "Raw": [".bin"],
    "LlmC": [".bin"],
    "Megatron": [".bin", ".idx"],
    "WebDataset": [".tar"],
}
FOLDER_INDEXES = {"WebDataset": "manifest.jsonl"}
"""The file in each folder that lists its shards."""


def files_of(
    format: str, tokens: Tokens, lengths: Sequence[int], *, number: int = 0, places: Sequence[Sequence[int]] = ()
) -> list[bytes]:
    """The files of a shard, in the order of `SUFFIXES`; `lengths`: tokens of each document in it, or of each row.

    `number`: of the shard in its split; `places`: file, position and offset of the first token of each row.
    """
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
        case "WebDataset":
            rows = tokens.reshape(len(lengths), -1).tolist()
            return [_tar(f"{number:08d}", rows, places)]
    raise ValueError(format)


def _tar(shard: str, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> bytes:
    """As Python's tarfile and zlib make it."""
    data = b""
    for row, (tokens, (file, position, offset)) in enumerate(zip(rows, places, strict=True)):
        text = json.dumps(tokens, separators=(",", ":")).encode()
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        packed = struct.pack("<4BI2B", 31, 139, 8, 0, 0, 4, 255) + deflate.compress(text) + deflate.flush()
        packed += struct.pack("<II", zlib.crc32(text), len(text))
        member = tarfile.TarInfo(f"{shard}_{row:08d}_{file:x}-{position:x}-{offset:x}.json.gz")
        member.size = len(packed)
        data += member.tobuf(tarfile.GNU_FORMAT) + packed + bytes(-len(packed) % 512)
    return data + bytes(1024)


def folder_index_of(format: str, shards: Sequence[tuple[str, int, int]]) -> bytes:
    """The file of `FOLDER_INDEXES`; `shards`: name of the file, bytes and rows of each."""
    assert format == "WebDataset"
    lines = [{"num_sequences": rows, "shard": name.removesuffix(".tar")} for name, _, rows in shards]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()


def read_tar(path: Path) -> dict[str, list[int]]:
    """The rows by their names, in order, as tarfile, gzip and json read them."""
    with tarfile.open(path) as file:
        members = file.getmembers()
        return {each.name: json.loads(gzip.decompress(file.extractfile(each).read())) for each in members}  # type: ignore[union-attr]


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
