"""WebDataset's `.tar`: a member `SHARD_ROW_FILE-POSITION-OFFSET.json.gz` for each row, a JSON list of its tokens.

Headers are compared with those that Python's tarfile makes. A folder's `manifest.jsonl` has a line for each shard.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from tokenization_worker.verification.formats.base import (
    DType,
    Expected,
    FolderIndex,
    ListedShard,
    Problem,
    ReadRange,
    TokenArray,
    no_tokens,
)

_BLOCK = 512
_READ_BYTES = 4 << 20


class _Broken(Exception):
    """What was expected, and what was found."""


class _Manifest:
    name = "manifest.jsonl"

    def content(self, shards: Sequence[ListedShard], dtype: DType, row_length: int) -> bytes:
        del dtype, row_length
        return b"".join(
            b'{"num_sequences":%d,"shard":"%s"}\n' % (shard.rows, shard.name.removesuffix(".tar").encode())
            for shard in shards
        )


class WebDatasetDecoder:
    """Shards of a `.tar`."""

    suffixes: tuple[str, ...] = (".tar",)
    has_random_access = False
    folder_index: FolderIndex | None = _Manifest()

    def size(self, number: int, tokens: int, dtype: DType) -> int | None:
        return None

    def scan(self, dtype: DType, row_length: int = 0) -> TarScan:
        return TarScan(dtype, row_length)

    def read(self, files: ReadRange, start: int, end: int, dtype: DType) -> TokenArray:
        scan = TarScan(dtype, 0)
        found: list[TokenArray] = []
        at = 0
        while scan.tokens_seen < end and (data := files(0, at, at + _READ_BYTES)):
            found.append(scan.take(0, data))
            at += len(data)
        return np.concatenate([no_tokens(dtype), *found])[start:end]


class TarScan:
    """A pass over one tar. `row_length` 0: rows may have any length. Stops at the first member that is no row."""

    def __init__(self, dtype: DType, row_length: int) -> None:
        self._dtype = dtype
        self._row_length = row_length
        self._rest = b""
        self._names: list[str] = []
        self._end: bytes | None = None  # from the first empty block on
        self._problem: Problem | None = None
        self.tokens_seen = 0

    def take(self, number: int, data: bytes) -> TokenArray:
        del number  # there is one
        rows: list[TokenArray] = []
        if self._end is not None:
            self._end += data
        elif self._problem is None:
            self._rest += data
            try:
                rows.extend(self._members())
            except _Broken as error:
                self._problem = Problem(0, *error.args)
        self.tokens_seen += sum(map(len, rows))
        return np.concatenate(rows) if rows else no_tokens(self._dtype)

    def _members(self) -> Iterator[TokenArray]:
        """The rows that are whole now."""
        at = 0
        while len(head := self._rest[at : at + _BLOCK]) == _BLOCK:
            if not any(head):
                self._end = self._rest[at:]
                break
            name, size = _parse_header(head)
            if len(self._rest) < at + _BLOCK + size + -size % _BLOCK:
                break
            content = self._rest[at + _BLOCK : at + _BLOCK + size]
            at += _BLOCK + size
            if any(self._rest[at : at + -size % _BLOCK]):
                raise _Broken(f"zeros behind {name}", "others")
            at += -size % _BLOCK
            row = self._parse_row(name, content)
            self._names.append(name)
            yield row
        self._rest = self._rest[at:]

    def _parse_row(self, name: str, content: bytes) -> TokenArray:
        inflate = zlib.decompressobj(zlib.MAX_WBITS + 16)
        try:
            text = inflate.decompress(content)
        except zlib.error as error:
            raise _Broken(f"a gzip stream in {name}", str(error)) from error
        if not inflate.eof or inflate.unused_data:
            raise _Broken(f"one whole gzip stream in {name}", "less or more")
        length, most = self._row_length, int(np.iinfo(self._dtype).max)
        what = f"a list of {length:,} ids up to {most:,} in {name}" if length else f"a list of ids in {name}"
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _Broken(what, str(error)) from error
        row = np.asarray(values) if isinstance(values, list) and {type(value) for value in values} == {int} else None
        if row is None or (length and len(row) != length) or int(row.min()) < 0 or int(row.max()) > most:
            raise _Broken(what, repr(text[:80]))
        return row.astype(self._dtype)

    @property
    def tokens(self) -> int | None:
        return None if self._problem is not None or not self._names else self.tokens_seen

    def problems(self, expected: Expected) -> Iterator[Problem]:
        if self._problem is not None:
            yield self._problem
            return
        if self._end != bytes(2 * _BLOCK):
            yield Problem(0, "two empty blocks at the end", "others")
        rows = 0 if expected.lengths is None else len(expected.lengths)
        if len(self._names) != rows:
            yield Problem(0, f"{rows:,} rows", f"{len(self._names):,}")
        elif expected.firsts is not None:
            for row, (position, file, _, _, _, offset) in enumerate(expected.firsts.tolist()):
                name = f"{expected.number:08d}_{row:08d}_{file:x}-{position:x}-{offset:x}.json.gz"
                if self._names[row] != name:
                    yield Problem(0, f"{name} as name of row {row:,}", self._names[row])
                    return


def _parse_header(head: bytes) -> tuple[str, int]:
    """Name and size of a member."""
    try:
        name = head[:100].rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError as error:
        raise _Broken("the header of a member, whose name is ASCII", _shown(head[:100])) from error
    try:
        size = int(head[124:135], 8)
    except ValueError as error:
        raise _Broken("the header of a member, whose size is octal", _shown(head[124:136])) from error
    member = tarfile.TarInfo(name)
    member.size = size
    expected = member.tobuf(tarfile.GNU_FORMAT)
    for field, (start, end) in _HEADER.items():
        if head[start:end] != expected[start:end]:
            words = (
                f"the header of a plain file without owner and time: {field} {_shown(expected[start:end])} of {name}"
            )
            raise _Broken(words, _shown(head[start:end]))
    return name, size


_HEADER = {
    "name": (0, 100),
    "mode": (100, 108),
    "user": (108, 116),
    "group": (116, 124),
    "size": (124, 136),
    "time": (136, 148),
    "type": (156, 157),
    "link": (157, 257),
    "magic": (257, 265),
    "user name": (265, 297),
    "group name": (297, 329),
    "device": (329, 345),
    "prefix": (345, 512),
    "checksum": (148, 156),
}
"""The fields of a header [start, end); the checksum last, since it differs with any other field."""


def _shown(field: bytes) -> str:
    """A field, without the zeros behind it."""
    return repr(field.rstrip(b"\0")[:40])


WEBDATASET = WebDatasetDecoder()
