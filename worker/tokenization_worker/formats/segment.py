"""Segments: scratch files with the tokens, document lengths and positions of one range.

A segment is a run of blocks and a footer. A block holds documents of one stream, in source order:

    tokens     dtype[n_tokens]   u16 or u32, delimiters included
    lengths    u32[n_docs]       tokens of each document, delimiter included
    positions  i64[n_docs]       byte offset of its record in the decompressed file; Parquet: row number
    slices     u32[n_docs]       which slice of the range it came from

    footer     zero or more rows of BLOCK, then TAIL

All numbers are little-endian. Every block carries its CRC32C in the footer, and the footer its own, so that a
segment torn by a power failure is found out (and its range tokenized again) rather than copied into a shard.
Blocks of a file that turned out corrupt stay where they are but belong to no stream, so positions never depend
on them. What identifies a segment is what its streams hold; how that is cut into blocks may differ from writer
to writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenization_worker.storage.base import NotFound, Store, Upload

MAGIC = b"TOKSEG1\n"
BLOCK = np.dtype(
    [
        ("stream", "<u4"),
        ("crc32c", "<u4"),  # of the whole block, going on from `crc32c_start`
        ("crc32c_start", "<u4"),
        ("n_tokens", "<i8"),
        ("n_docs", "<i8"),
        ("offset", "<i8"),
    ]
)
TAIL = np.dtype(
    [
        ("n_blocks", "<i8"),
        ("digest", "V16"),  # of the receipt that this segment belongs to
        ("crc32c", "<u4"),  # of the rows, and of the fields before
        ("magic", "V8"),
    ]
)

DROPPED = 0xFFFFFFFF
"""The stream of blocks that nobody reads."""


class SegmentLost(Exception):
    """The segment is missing, cut or torn; its range must be tokenized again.

    `version`: which object was bad; None where there was none.
    """

    def __init__(self, range_id: int, detail: str, version: str | None = None) -> None:
        super().__init__(range_id, detail, version)
        self.range_id = range_id
        self.detail = detail
        self.version = version


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
        self._blocks: list[tuple[int, int, int, int, int, int]] = []
        self._offset = 0
        self.n_streams = n_streams

    def append(
        self,
        stream: int,
        tokens: NDArray[np.unsignedinteger],
        lengths: NDArray[np.uint32],
        positions: NDArray[np.int64],
        slices: NDArray[np.uint32],
        *,
        crc_start: int = 0,
    ) -> int:
        """Write one block; returns `crc32c_of(tokens, start=crc_start)`, so that tokens are summed once.

        `tokens` is u16 or u32; the other arrays have one entry a document.
        """
        for array in (tokens, lengths, positions, slices):
            self._upload.write(array.data)
        tokens_crc = crc32c_of(tokens, start=crc_start)
        crc = crc32c_of(lengths, positions, slices, start=tokens_crc)
        self._blocks.append((stream, crc, crc_start, len(tokens), len(lengths), self._offset))
        self._offset += tokens.nbytes + lengths.nbytes + positions.nbytes + slices.nbytes
        return tokens_crc

    def mark(self) -> int:
        """The number of blocks so far, for `drop_from`."""
        return len(self._blocks)

    def drop_from(self, mark: int) -> None:
        """Take the blocks written since `mark` out of their streams."""
        self._blocks[mark:] = [(DROPPED, *block[1:]) for block in self._blocks[mark:]]

    def finish(self, digest: str) -> int:
        """Write the footer with the digest (32 hexadecimal digits) that the receipt has, too; the segment's size."""
        rows = np.array(self._blocks, dtype=BLOCK)
        tail = np.zeros(1, dtype=TAIL)
        tail["n_blocks"], tail["digest"], tail["magic"] = len(rows), bytes.fromhex(digest), MAGIC
        tail["crc32c"] = _footer_crc(rows, tail)
        for array in (rows, tail):
            self._upload.write(array.tobytes())
        return self._offset + rows.nbytes + tail.nbytes


def _footer_crc(rows: NDArray[np.void], tail: NDArray[np.void]) -> int:
    return crc32c_of(rows, tail["n_blocks"].copy(), tail["digest"].copy())


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
            raise SegmentLost(range_id, f"{path} does not exist")
        self._size = entry.size
        self._version = entry.version
        end = self._read(max(0, entry.size - 65536), entry.size)
        if len(end) < TAIL.itemsize or end[-len(MAGIC) :] != MAGIC:
            raise self._torn(f"no footer at {entry.size} bytes")
        tail = np.frombuffer(end[-TAIL.itemsize :], dtype=TAIL)
        footer_bytes = int(tail["n_blocks"][0]) * BLOCK.itemsize + TAIL.itemsize
        if footer_bytes > len(end):
            end = self._read(entry.size - footer_bytes, entry.size)
        self._blocks = np.frombuffer(end[len(end) - footer_bytes : -TAIL.itemsize], dtype=BLOCK)
        if _footer_crc(self._blocks, tail) != int(tail["crc32c"][0]):
            raise self._torn("wrong checksum of the footer")
        if tail["digest"][0].tobytes().hex() != digest:
            raise self._torn("it does not match its receipt")

    def _torn(self, detail: str) -> SegmentLost:
        return SegmentLost(self._range_id, f"{self._path}: {detail}", self._version)

    def _read(self, start: int, end: int) -> bytes:
        return next(self._read_each([(start, end)]))

    def _read_each(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        for start, end in ranges:
            if not 0 <= start <= end <= self._size:
                raise self._torn(f"bytes {start} to {end} of {self._size}")
        try:
            for (start, end), data in zip(ranges, self._store.read_ranges(self._path, ranges), strict=True):
                if len(data) != end - start:
                    raise self._torn(f"ends at {start + len(data)}, expected {end}")
                yield data
        except NotFound as error:
            raise SegmentLost(self._range_id, f"{self._path} does not exist") from error

    def _overlapping(self, stream: int, start: int, end: int) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """The footer's rows of the blocks of `stream` that hold tokens of [start, end), and where each begins."""
        rows = self._blocks[self._blocks["stream"] == stream]
        token_ends = np.cumsum(rows["n_tokens"])
        token_starts = token_ends - rows["n_tokens"]
        wanted = (token_starts < end) & (token_ends > start)
        return rows[wanted], token_starts[wanted]

    def blocks(self, stream: int, start: int, end: int) -> Iterator[Block]:
        """Blocks of `stream` that hold tokens of [start, end), in order."""
        rows, token_starts = self._overlapping(stream, start, end)
        sizes = rows["n_tokens"] * self._dtype.itemsize + rows["n_docs"] * 16
        ranges = list(zip(rows["offset"].tolist(), (rows["offset"] + sizes).tolist(), strict=True))
        for row, token_start, data in zip(rows, token_starts.tolist(), self._read_each(ranges), strict=True):
            yield self._block(row, token_start, data)

    def lengths(self, stream: int, start: int, end: int) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Of each of these blocks where it begins, and the tokens of its documents, without reading those.

        Only their sum is checked: `blocks` checks all when it reads the tokens.
        """
        rows, token_starts = self._overlapping(stream, start, end)
        begins = rows["offset"] + rows["n_tokens"] * self._dtype.itemsize
        ranges = list(zip(begins.tolist(), (begins + rows["n_docs"] * 4).tolist(), strict=True))
        for row, token_start, data in zip(rows, token_starts.tolist(), self._read_each(ranges), strict=True):
            found = np.frombuffer(data, "<u4")
            if int(found.sum(dtype=np.int64)) != int(row["n_tokens"]):
                raise self._torn(f"wrong lengths of the documents at byte {int(row['offset'])}")
            yield token_start, found

    def _block(self, row: np.void, token_start: int, data: bytes) -> Block:
        n_tokens, n_docs, offset = int(row["n_tokens"]), int(row["n_docs"]), int(row["offset"])
        if google_crc32c.extend(int(row["crc32c_start"]), data) != int(row["crc32c"]):
            raise self._torn(f"wrong checksum at byte {offset}")
        arrays = []
        position = 0
        for dtype, count in ((self._dtype, n_tokens), ("<u4", n_docs), ("<i8", n_docs), ("<u4", n_docs)):
            arrays.append(np.frombuffer(data, dtype=dtype, count=count, offset=position))
            position += arrays[-1].nbytes
        return Block(token_start, *arrays)
