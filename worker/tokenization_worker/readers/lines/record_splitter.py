"""Blocks of decompressed bytes to runs of whole records, for any separator and any slice of a file.

A record starts at byte 0 or right after a separator, and ends before the next separator or at the end of the
file; nothing after a last separator is no record. A slice [start, end) owns the records that start in it.

Invariant: cut a file anywhere, and the runs of its slices together are the runs of the whole file: same
records, same offsets. So a slice needs one look back (the length of the separator) and reads on past `end`
to finish its last record. This holds for separators that cannot overlap themselves (`can_cut`).
Memory is a block plus one unfinished record of at most `max_record_bytes`; longer ones are counted, not
kept. What a record says is left to `jsonl` and `text`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.detection.detect import UTF8_BOM
from tokenization_worker.readers.document_batch import EXCERPT_BYTES

PACK_ABOVE_BYTES = 64 << 20
"""What an unfinished record holds beyond this is kept zstd-compressed: most records that get so long turn
out too long (limit 384 MiB by default), and a worker is to stay below 600 MB with its tokenizers."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole records: `data[begin:end]`, each but possibly the last followed by its separator.

    `offset` is where the first of them starts in the decompressed file. At the start of a file that is
    before `data[begin]` if there is a byte order mark: it belongs to the first record, not to its content.
    """

    data: bytes | bytearray
    begin: int
    end: int
    offset: int
    source_bytes: int


def rest_of(run: Run, begin: int, offset: int) -> Run | None:
    """The records of `run` from `data[begin]` on, or None."""
    return Run(run.data, begin, run.end, offset, run.end - begin) if begin < run.end else None


@dataclass(frozen=True, slots=True)
class Oversized:
    """A record of `size` bytes that was passed over; `head` is enough of it for an excerpt."""

    offset: int
    size: int
    head: bytes
    source_bytes: int


def can_cut(separator: bytes) -> bool:
    """Whether files with this separator may be cut into slices.

    Not if a proper prefix of it is also its suffix: in "aaa" the separator "aa" stands at 0 when read from
    the start and at 1 when read from there.
    """
    return not any(separator.startswith(separator[-size:]) for size in range(1, len(separator)))


def first_byte(start: int, separator: bytes | None) -> int:
    """Where the reading of a slice begins: a separator that ends at `start` has to be seen."""
    return max(0, start - len(separator)) if separator else 0


def split_runs(
    blocks: Iterator[bytes], start: int, end: int, separator: bytes | None, max_record_bytes: int
) -> Iterator[Run | Oversized]:
    """The records that start in [start, end), in order; `end` -1 is the end of the file.

    `blocks` begin at `first_byte(start, separator)`. Without a separator the file is one record. Records
    longer than `max_record_bytes` come as `Oversized` only if they did not fit into a block: the caller
    still has to look.
    """
    if separator is None:
        return _whole_file(blocks, start, end, max_record_bytes)
    scanner = _Scanner(separator)
    return _runs(_owned(scanner.align(blocks), start, end, separator), scanner, max_record_bytes)


class _Scanner:
    """Finds separators from left to right, as if the file were one string."""

    def __init__(self, separator: bytes) -> None:
        self.separator = separator
        self._overlaps = not can_cut(separator)

    def end_of_last(self, data: bytes, begin: int, end: int) -> int:
        """Where the last separator of `data[begin:end]` ends, or `begin`."""
        size = len(self.separator)
        if not self._overlaps:
            last = data.rfind(self.separator, begin, end)
            return begin if last < 0 else last + size
        while (at := data.find(self.separator, begin, end)) >= 0:
            begin = at + size
        return begin

    def align(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The same bytes in blocks that no separator straddles."""
        if len(self.separator) == 1:
            yield from blocks
            return
        rest = b""
        for block in blocks:
            data = rest + block if rest else block
            free = len(data) - self.end_of_last(data, 0, len(data)) if self._overlaps else len(data)
            sizes = range(min(len(self.separator) - 1, free), 0, -1)
            held = next((size for size in sizes if data.endswith(self.separator[:size])), 0)
            rest = data[len(data) - held :]
            if held < len(data):
                yield data[: len(data) - held] if held else data
        if rest:
            yield rest


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes `data[begin:end]` that a slice owns; `offset` is the file offset of `data[begin]`."""

    data: bytes
    begin: int
    end: int
    offset: int


def _owned(blocks: Iterator[bytes], start: int, end: int, separator: bytes) -> Iterator[_Part]:
    """The bytes of the records that start in [start, end), with their separators."""
    size = len(separator)
    if start == end:
        return
    offset = first_byte(start, separator)  # of the block's first byte
    found_start = start == 0
    for block in blocks:
        begin = 0
        if not found_start:
            at = block.find(separator)
            if at < 0:
                offset += len(block)
                continue
            found_start = True
            begin = at + size
            if 0 <= end <= offset + begin:
                return
        if end >= 0:
            last = block.find(separator, max(begin, end - size - offset))
            if last >= 0:
                yield _Part(block, begin, last + size, offset + begin)
                return
        yield _Part(block, begin, len(block), offset + begin)
        offset += len(block)


def _runs(parts: Iterator[_Part], scanner: _Scanner, max_record_bytes: int) -> Iterator[Run | Oversized]:
    separator_size = len(scanner.separator)
    open_record = _OpenRecord(max_record_bytes + separator_size)
    for part in parts:
        data, begin, end = part.data, part.begin, part.end
        if open_record.size or (part.offset == 0 and begin == 0 and data.startswith(UTF8_BOM)):
            at = data.find(scanner.separator, begin, end)
            stop = end if at < 0 else at + separator_size
            open_record.add(data[begin:stop], part.offset)
            if at < 0:
                continue
            yield open_record.take(separator_size)
            begin = stop
        last = scanner.end_of_last(data, begin, end)
        if begin < last:
            yield Run(data, begin, last, part.offset + begin - part.begin, last - begin)
        if last < end:
            open_record.add(data[last:end], part.offset + last - part.begin)
    if open_record.size:
        yield open_record.take(0)


def _whole_file(blocks: Iterator[bytes], start: int, end: int, max_record_bytes: int) -> Iterator[Run | Oversized]:
    if start > 0 or end == 0:
        return
    record = _OpenRecord(max_record_bytes)
    for block in blocks:
        record.add(block, 0)
    if record.size:
        yield record.take(0)


class _OpenRecord:
    """A record whose end has not been seen. Never holds more than `max_bytes`, and packs what is much."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes + len(UTF8_BOM)
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._offset = 0
        self._head = b""
        self._plain: list[bytes] = []
        self._packed: list[tuple[int, bytes]] = []

    def add(self, data: bytes, offset: int) -> None:
        """Append `data`; `offset` is where it lies in the file."""
        if not self.size:
            self._offset = offset
        if len(self._head) < EXCERPT_BYTES:
            self._head += data[: EXCERPT_BYTES - len(self._head)]
        self.size += len(data)
        if self.size > self._max_bytes:
            self._plain.clear()
            self._packed.clear()
        elif self.size > PACK_ABOVE_BYTES:
            self._packed.append((len(data), zstd.compress(data, 1)))
        else:
            self._plain.append(data)

    def take(self, separator_size: int) -> Run | Oversized:
        """The finished record, whose last `separator_size` bytes are its separator; starts over."""
        bom = len(UTF8_BOM) if self._offset == 0 and self._head.startswith(UTF8_BOM) else 0
        if self.size > self._max_bytes:
            end = self.size - separator_size
            result: Run | Oversized = Oversized(self._offset, end - bom, self._head[bom:end], self.size)
        else:
            result = Run(self._join(), bom, self.size, self._offset, self.size)
        self._clear()
        return result

    def _join(self) -> bytes | bytearray:
        if not self._packed:
            return b"".join(self._plain)
        whole = bytearray(self.size)
        at = 0
        for data in self._plain:
            whole[at : at + len(data)] = data
            at += len(data)
        self._plain.clear()
        self._packed.reverse()
        while self._packed:
            size, packed = self._packed.pop()
            whole[at : at + size] = zstd.decompress(packed)
            at += size
        return whole
