"""WebDataset: a tar of one file a row, `.json.gz`: the row's tokens as a JSON list of numbers.

A member is called `SHARD_ROW_FILE-POSITION-OFFSET.json.gz`: the numbers of its shard (8 digits) and of its row in the
shard (8), and in hexadecimal the place of the row's first token, as the parts have it. Its gzip stream has level 1 and
no time. The tar is GNU's, without owners and times, and ends with two empty blocks. A folder's `manifest.jsonl` lists
its shards for DCLM's loaders:

    {"num_sequences":8192,"shard":"shard_00000000"}

zlib decides the compressed bytes, so two versions of it may write other files. A tar cannot be read by number: readers
take it whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from tokenization_worker.formats.base import (
    ByteSink,
    FormatTraits,
    IndexedShard,
    LengthArray,
    ShardReader,
    ShardShape,
    ShardUnreadable,
    ShardWriter,
    StoredFile,
    TokenArray,
)
from tokenization_worker.sequences.parts import PartArray
from tokenization_worker.storage.base import NotFound

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_LEVEL = 1
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Deflate, no time, the fastest level, no named system."""

_FIRST_MEMBER = re.compile(rb"[0-9]{8,}_0{8}_[0-9a-f]+-[0-9a-f]+-[0-9a-f]+\.json\.gz\0+")
_NAME_BYTES = 100
_SIZE = slice(124, 136)
_SUM = slice(148, 156)

_BYTES_A_TOKEN = 2.0
"""Compressed: 1.9 to 2.2 of 100 web pages in gpt2 and cl100k_base, rows of 2,049 to 129 tokens (2026-11-25)."""
_BYTES_A_MEMBER = _BLOCK + _BLOCK // 2
"""Beside its content: a header, and what fills its last block."""


class _Manifest:
    """`manifest.jsonl`."""

    name = "manifest.jsonl"

    def to_bytes(self, shards: Sequence[IndexedShard], shape: ShardShape) -> bytes:
        del shape  # readers see it
        lines = ({"num_sequences": shard.rows, "shard": shard.name.removesuffix(".tar")} for shard in shards)
        return b"".join(orjson.dumps(line) + b"\n" for line in lines)


_MANIFEST_LINE = re.compile(rb'\{"num_sequences":[0-9]+,"shard":"[^"]+"\}\n')


class WebDatasetFormat:
    """Shards of one `.tar`."""

    suffixes: tuple[str, ...] = (".tar",)
    traits = FormatTraits(
        has_random_access=False,
        needs_rows=True,
        library=lambda: f"zlib {zlib.ZLIB_RUNTIME_VERSION}",
        folder_index=_Manifest(),
    )

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink]) -> ShardWriter:
        return TarWriter(shape, sinks[0])

    def total_bytes(self, shape: ShardShape, shards: int, entries: int) -> int:
        return round(shape.tokens * _BYTES_A_TOKEN) + entries * _BYTES_A_MEMBER + shards * len(_END)

    def reader(self, shape: ShardShape, files: Sequence[StoredFile]) -> ShardReader:
        return TarReader(shape, files[0])

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape) -> str | None:
        if number:
            line = _MANIFEST_LINE.match(file.store.read_range(file.path, 0, _BLOCK))
            return None if line else "it does not begin as the manifest.jsonl of a folder does"
        if file.size % _BLOCK or file.size < 2 * _BLOCK * shape.rows + len(_END):
            return f"no unfinished shard of this run has {file.size:,} bytes"
        head = file.store.read_range(file.path, 0, _BLOCK)
        is_ours = _FIRST_MEMBER.fullmatch(head[:_NAME_BYTES]) and head[_SUM] == _checksum(head)
        return None if is_ours else "it does not begin with the first row of a shard of this run"


class TarWriter:
    """Writes a member for each row."""

    def __init__(self, shape: ShardShape, sink: ByteSink) -> None:
        self._shape = shape
        self._sink = sink
        self._row = 0

    def write(self, tokens: TokenArray, parts: PartArray) -> None:
        rows = tokens.reshape(-1, self._shape.row_length)
        firsts = parts[np.searchsorted(parts["row"], np.arange(self._row, self._row + len(rows)))]
        for row, (position, file, _, _, _, offset) in zip(rows, firsts.tolist(), strict=True):
            name = f"{self._shape.number:08d}_{self._row:08d}_{file:x}-{position:x}-{offset:x}.json.gz"
            data = _compress(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY))
            self._sink.write(_header(name, len(data)) + data + bytes(-len(data) % _BLOCK))
            self._row += 1

    def finish(self, entries: LengthArray) -> None:
        self._sink.write(_END)


def _compress(data: bytes) -> bytes:
    """A gzip stream whose header and end are the same everywhere."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    end = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return b"".join((_GZIP_HEAD, deflate.compress(data), deflate.flush(), end))


def _header(name: str, size: int) -> bytes:
    """Of a plain file, mode 644, of nobody, of 1970."""
    head = bytearray(_BLOCK)
    head[: len(name)] = name.encode()
    head[100 : _SIZE.start] = b"0000644\0" + 2 * b"0000000\0"
    head[_SIZE] = b"%011o\0" % size
    head[136:148] = b"00000000000\0"
    head[156:157] = b"0"
    head[257:265] = b"ustar  \0"
    head[_SUM] = _checksum(head)
    return bytes(head)


def _checksum(head: bytes | bytearray) -> bytes:
    """The field of a header that sums its bytes, those of the field itself as blanks."""
    total = sum(head) - sum(head[_SUM]) + 8 * ord(" ")
    return b"%06o\0 " % total


class TarReader:
    """Reads a shard whole, whatever is asked for."""

    def __init__(self, shape: ShardShape, file: StoredFile) -> None:
        self._shape = shape
        self._file = file

    def check(self) -> None:
        entry = self._file.store.stat(self._file.path)
        if entry is None:
            raise ShardUnreadable(self._file, "is missing")
        if entry.size != self._file.size:
            raise ShardUnreadable(self._file, f"has {entry.size:,} bytes, expected {self._file.size:,}")

    def open(self) -> TokenArray:
        self.check()
        try:
            data = self._file.store.read(self._file.path)
        except NotFound as error:
            raise ShardUnreadable(self._file, "is missing") from error
        length = self._shape.row_length
        tokens = np.empty((self._shape.rows, length), dtype=self._shape.dtype)
        found = 0
        for number, row in enumerate(self._rows(data)):
            if number < len(tokens):
                tokens[number] = row
            found += 1
        if found != len(tokens):
            raise ShardUnreadable(self._file, f"has {found:,} rows, expected {len(tokens):,}")
        tokens = tokens.reshape(-1)
        tokens.flags.writeable = False
        return tokens

    def _rows(self, data: bytes) -> Iterator[TokenArray]:
        at = 0
        while (head := data[at : at + _BLOCK]) and any(head):
            try:
                size = int(head[_SIZE].rstrip(b"\0 "), 8)
                content = zlib.decompress(data[at + _BLOCK : at + _BLOCK + size], wbits=zlib.MAX_WBITS + 16)
                row = np.array(orjson.loads(content), dtype=self._shape.dtype)
            except (ValueError, OverflowError, TypeError, zlib.error) as error:
                raise ShardUnreadable(self._file, f"has no row at byte {at:,}: {error}") from error
            if row.shape != (self._shape.row_length,):
                raise ShardUnreadable(self._file, f"has a row of another length at byte {at:,}: {row.shape}")
            yield row
            at += _BLOCK + size + -size % _BLOCK

    def read(self, start: int, end: int) -> TokenArray:
        return self.open()[start:end]


WEBDATASET = WebDatasetFormat()
