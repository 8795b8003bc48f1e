"""Segments: the tokens of one range with its document lengths and places. Scratch.

A segment is a run of blocks and a footer. A block holds documents of one stream, in source order:

    tokens     dtype[n_tokens]   u16 or u32, delimiters included
    lengths    u32[n_docs]       tokens of each document, delimiter included
    positions  i64[n_docs]       byte offset of its record in the decompressed file; Parquet: row number
    slices     u32[n_docs]       which slice of the range it came from

    footer     zero or more rows of BLOCK, then u64 number of rows, then the magic

All numbers are little-endian. Every block carries its CRC32C in the footer, so that a segment torn by a
power failure is found out (and its range tokenized again) rather than copied into a shard. Blocks of a file
that turned out damaged stay where they are but belong to no stream, so positions never depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenization_worker.storage.base import NotFound, Store, Upload

MAGIC = b"TOKSEG1\n"
BLOCK = np.dtype(
    [
        ("stream", "<u4"),
        ("crc32c", "<u4"),
        ("n_tokens", "<i8"),
        ("n_docs", "<i8"),
        ("offset", "<i8"),
    ]
)


DROPPED = 0xFFFFFFFF
"""The stream of blocks that nobody reads."""


class SegmentLost(Exception):
    """The segment is missing, cut or torn; its range must be tokenized again."""

    def __init__(self, range_id: int, detail: str) -> None:
        super().__init__(range_id, detail)
        self.range_id = range_id
        self.detail = detail


def crc32c_of(*arrays: NDArray[np.generic], start: int = 0) -> int:
    """CRC32C of the bytes of contiguous arrays, one after the other, without a copy of them."""
    crc = start
    for array in arrays:
        crc = google_crc32c.extend(crc, array.view(np.uint8))
    return crc


class SegmentWriter:
    """Appends blocks to an upload; memory is bounded by one block."""

    def __init__(self, upload: Upload, n_streams: int) -> None:
        self._upload = upload
        self._blocks: list[tuple[int, int, int, int, int]] = []
        self._offset = 0
        self.n_streams = n_streams

    def append(
        self,
        stream: int,
        tokens: NDArray[np.unsignedinteger],
        lengths: NDArray[np.uint32],
        positions: NDArray[np.int64],
        slices: NDArray[np.uint32],
    ) -> int:
        """Write one block; returns `crc32c_of(tokens, lengths)`.

        `tokens` is u16 or u32; the other arrays have one entry a document.
        """
        for array in (tokens, lengths, positions, slices):
            self._upload.write(array.data)
        data_crc = crc32c_of(tokens, lengths)
        crc = crc32c_of(positions, slices, start=data_crc)
        self._blocks.append((stream, crc, len(tokens), len(lengths), self._offset))
        self._offset += tokens.nbytes + lengths.nbytes + positions.nbytes + slices.nbytes
        return data_crc

    def mark(self) -> int:
        """The number of blocks so far, for `drop_from`."""
        return len(self._blocks)

    def drop_from(self, mark: int) -> None:
        """Take the blocks written since `mark` out of their streams."""
        self._blocks[mark:] = [(DROPPED, *block[1:]) for block in self._blocks[mark:]]

    def finish(self) -> tuple[int, str]:
        """Write the footer; returns the segment's size in bytes and its digest."""
        rows = np.array(self._blocks, dtype=BLOCK)
        footer = rows.tobytes() + len(rows).to_bytes(8, "little") + MAGIC
        self._upload.write(footer)
        return self._offset + len(footer), _digest(rows)


def _digest(blocks: NDArray[np.void]) -> str:
    """Identifies what the streams hold, wherever the blocks lie and whatever was dropped between them."""
    kept = blocks[blocks["stream"] != DROPPED].copy()
    kept["offset"] = 0
    return sha256(kept.tobytes()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Block:
    """One block as read back; arrays are views of the bytes read."""

    token_start: int
    tokens: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint32]
    positions: NDArray[np.int64]
    slices: NDArray[np.uint32]


class SegmentReader:
    """Reads the blocks of one stream that overlap a run of tokens; raises `SegmentLost`."""

    def __init__(
        self, store: Store, path: str, *, range_id: int, digest: str, dtype: np.dtype[np.unsignedinteger]
    ) -> None:
        self._store = store
        self._path = path
        self._range_id = range_id
        self._dtype = dtype
        entry = store.stat(path)
        if entry is None:
            raise SegmentLost(range_id, f"{path} is gone")
        self._size = entry.size
        tail = self._read(max(0, entry.size - 65536), entry.size)
        if len(tail) < 16 or tail[-8:] != MAGIC:
            raise SegmentLost(range_id, f"{path}: no footer at {entry.size} bytes")
        footer_bytes = int.from_bytes(tail[-16:-8], "little") * BLOCK.itemsize + 16
        if footer_bytes > len(tail):
            tail = self._read(entry.size - footer_bytes, entry.size)
        self._blocks = np.frombuffer(tail[len(tail) - footer_bytes : -16], dtype=BLOCK)
        if _digest(self._blocks) != digest:
            raise SegmentLost(range_id, f"{path} is not the segment of its receipt")

    def _read(self, start: int, end: int) -> bytes:
        if not 0 <= start <= end <= self._size:
            raise SegmentLost(self._range_id, f"{self._path}: bytes {start} to {end} of {self._size}: torn")
        try:
            data = self._store.read_range(self._path, start, end)
        except NotFound as error:
            raise SegmentLost(self._range_id, f"{self._path} is gone") from error
        if len(data) != end - start:
            raise SegmentLost(self._range_id, f"{self._path} ends at {start + len(data)}, expected {end}")
        return data

    def blocks(self, stream: int, start: int, end: int) -> Iterator[Block]:
        """Blocks of `stream` that hold tokens of [start, end), in order."""
        token_start = 0
        for row in self._blocks[self._blocks["stream"] == stream]:
            n_tokens = int(row["n_tokens"])
            if token_start < end and token_start + n_tokens > start:
                yield self._block(row, token_start)
            token_start += n_tokens

    def _block(self, row: np.void, token_start: int) -> Block:
        n_tokens, n_docs, offset = int(row["n_tokens"]), int(row["n_docs"]), int(row["offset"])
        size = n_tokens * self._dtype.itemsize + n_docs * 16
        data = self._read(offset, offset + size)
        if google_crc32c.value(data) != int(row["crc32c"]):
            raise SegmentLost(self._range_id, f"{self._path}: wrong checksum at byte {offset}")
        arrays = []
        position = 0
        for dtype, count in ((self._dtype, n_tokens), ("<u4", n_docs), ("<i8", n_docs), ("<u4", n_docs)):
            arrays.append(np.frombuffer(data, dtype=dtype, count=count, offset=position))
            position += arrays[-1].nbytes
        return Block(token_start, *arrays)
