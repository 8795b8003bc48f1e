"""Lists of unusable documents: one for each range, and one table at the end.

A range's list is JSON lines in source order under zstd, named by the digest of the lines so that two writers of one
range cannot overwrite each other's; older versions did not compress it. Its receipt says which list counts. The final
table adds line numbers, which are known only when every range before has counted its lines. A list may be longer than
memory: it is written and read in chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self, cast

import google_crc32c
import orjson

from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.host.temporary import map_temporary_errors
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_chunks
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import FileSlice, Rejected
from tokenization_worker.storage.base import Entry, NotFound, Store

_IN_MEMORY_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
_SHORT_BYTES = 256 << 10
_SHORT_ROWS_BYTES = 4 << 20
"""What a short list may have when it is decompressed: each connection holds one."""

_ZSTD_OPTIONS: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}


class TooManyUnusable(Exception):
    """A range has ended early: with what it has found, `maxQuarantined` is exceeded for certain.

    It has written nothing but its list so far, of this digest. `read` documents of it, usable or not, were seen.
    """

    def __init__(self, range_id: int, list_digest: str, read: int, reasons: Counter[str]) -> None:
        super().__init__(range_id, list_digest, read, reasons)
        self.range_id = range_id
        self.list_digest = list_digest
        self.read = read
        self.reasons = reasons


class Hash(Protocol):
    """What hashlib gives."""

    def hexdigest(self) -> str: ...


class QuarantineList:
    """One range's list while it grows: in memory at first, in the temporary folder when it is long.

    Compressed as it comes, a frame for the rows of each slice: a row is ten times as long as the line of `x` that it
    tells of, and nearly the same as the row before. Raises `TemporaryError` where that folder is full.
    """

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        self._frame: zstd.ZstdCompressor | None = None  # the one that has not ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with suppress(OSError):  # it writes what a full disk has not taken; nobody will read it
            self._file.close()

    @map_temporary_errors()
    def add(self, number: int, source: FileSlice, *items: Rejected) -> None:
        """Append documents of the range's `number`-th slice."""
        place = {"slice": number, "file": source.file, "uri": source.uri}
        rows = [
            orjson.dumps(
                place
                | {
                    "position": item.position,
                    "record": item.record,
                    "reason": item.reason,
                    "detail": item.detail,
                    "excerpt": item.excerpt,
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            for item in items
        ]
        if self._frame is None:
            self._frame = zstd.ZstdCompressor(options=_ZSTD_OPTIONS)
        if packed := self._frame.compress(b"".join(rows)):
            self._file.write(packed)

    @map_temporary_errors()
    def mark(self) -> int:
        """A place in the list that `drop_from` goes back to."""
        self._end_frame()
        return self._file.tell()

    @map_temporary_errors()
    def drop_from(self, mark: int) -> None:
        """Forget what was added since `mark`: its file is dropped whole."""
        self._frame = None
        self._file.seek(mark)
        self._file.truncate()

    @map_temporary_errors()
    def _end_frame(self) -> None:
        if self._frame is not None:
            self._file.write(self._frame.flush())
            self._frame = None

    def store(self, store: Store, epoch: int, range_id: int) -> str:
        """Write the list; returns the digest of its rows, which names it, "" for an empty one."""
        if not self.mark():
            return ""
        digest = sha256()
        for chunk in self._rows():
            digest.update(chunk)
        name = digest.hexdigest()[:32]
        create_chunks(store, layout.quarantine_path(epoch, range_id, name), self._chunks())
        return name

    def _rows(self) -> Iterator[bytes]:
        with map_temporary_errors():
            self._file.seek(0)
            with zstd.open(self._file) as rows:
                while chunk := rows.read(_CHUNK_BYTES):
                    yield chunk

    def _chunks(self) -> Iterator[bytes]:
        with map_temporary_errors():
            self._file.seek(0)
            while chunk := self._file.read(_CHUNK_BYTES):
                yield chunk


def read_range_lists(
    store: Store, epoch: int, digests: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(range, row) of many ranges' lists, named by (range, digest); each range's as from `read_range_list`.

    Most lists are short and come in two calls each, many at once.
    """

    def fetch(named: tuple[int, str]) -> tuple[int, str, bytes | None]:
        return *named, _read_short_list(store, epoch, *named)

    for range_id, digest, short in map_at_once(fetch, digests, store.connections):
        rows = read_range_list(store, epoch, range_id, digest) if short is None else map(orjson.loads, _lines([short]))
        for row in rows:
            yield range_id, row


def _read_short_list(store: Store, epoch: int, range_id: int, digest: str) -> bytes | None:
    """The rows of the list, as they were written; None where they are many, or anything is wrong with them."""
    try:
        data = store.read_range(layout.quarantine_path(epoch, range_id, digest), 0, _SHORT_BYTES + 1)
        if len(data) > _SHORT_BYTES:
            return None
        with zstd.open(BytesIO(data)) as packed:
            rows = packed.read(_SHORT_ROWS_BYTES + 1)
    except (NotFound, zstd.ZstdError, EOFError):
        return None
    return rows if len(rows) <= _SHORT_ROWS_BYTES and _has_digest(sha256(rows), digest) else None


def _has_digest(rows: Hash, digest: str) -> bool:
    """Whether `rows` have the digest that a receipt (32 digits) or a path (16) names."""
    return rows.hexdigest()[:32].startswith(digest)


def find_corrupt_lists(store: Store, epoch: int, digests: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Entry]]:
    """(range, the list) of each of these lists, named by (range, digest), that is not as it was written.

    One that is gone is not among them.
    """

    def find_entry(named: tuple[int, str]) -> tuple[int, Entry | None]:
        range_id, digest = named
        entry = _find_list(store, epoch, range_id, digest)
        try:
            with suppress(ListLost):
                for _ in read_range_list(store, epoch, range_id, digest):
                    break  # no row is given out before all are known to be right
        except DataError:
            return range_id, entry
        return range_id, None

    for range_id, entry in map_at_once(find_entry, digests, store.connections):
        if entry is not None:
            yield range_id, entry


def _find_list(store: Store, epoch: int, range_id: int, digest: str) -> Entry | None:
    """The list, where this version or an older one has put it."""
    found = map(store.stat, layout.quarantine_paths(epoch, range_id, digest))
    return next((entry for entry in found if entry is not None), None)


def read_range_list(store: Store, epoch: int, range_id: int, digest: str) -> Iterator[dict[str, Any]]:
    """The rows of one range's list; raises `TemporaryError` if it is gone, `DataError` if it is another one.

    It is read twice: no row is given out before the digest of all of them is known to be right.
    """
    if not digest:
        return
    entry = _find_list(store, epoch, range_id, digest)
    path = layout.quarantine_path(epoch, range_id, digest) if entry is None else entry.path
    try:
        if entry is None:
            raise NotFound(path)
        for _ in _stored_rows(store, entry, digest):
            pass
        for line in _lines(_stored_rows(store, entry, digest)):
            yield orjson.loads(line)
    except NotFound as error:
        raise ListLost(
            "QuarantineLost",
            f"{store.uri}/{path} does not exist: it is the list of unusable documents of range {range_id}",
            next_step="start the same command again, which writes it again",
        ) from error
    except orjson.JSONDecodeError as error:
        raise _changed(store, path) from error


def _stored_rows(store: Store, entry: Entry, digest: str) -> Iterator[bytes]:
    """The bytes of the rows; raises at their end if they have another digest: `TemporaryError` where the store says
    that it holds other bytes than came, else `DataError`.
    """
    found = sha256()
    stored = _StoredBytes(store, entry)
    rows = stored if entry.path.endswith(".jsonl") else zstd.open(cast(BinaryIO, stored))
    is_whole = True
    try:
        while chunk := rows.read(_CHUNK_BYTES):
            found.update(chunk)
            yield chunk
    except (zstd.ZstdError, EOFError):
        is_whole = False
        while stored.read(_CHUNK_BYTES):  # for the checksum of all of it
            pass
    if is_whole and _has_digest(found, digest):
        return
    if entry.crc32c not in (None, stored.crc32c):
        raise TemporaryError(
            "StorageFailed",
            f"{store.uri}/{entry.path}: its bytes have CRC32C {stored.crc32c:08x}, expected {entry.crc32c:08x}",
            next_step="start the same command again",
        )
    raise _changed(store, entry.path)


class _StoredBytes:
    """An object's bytes as they come, `_CHUNK_BYTES` a call, and their CRC32C so far."""

    def __init__(self, store: Store, entry: Entry) -> None:
        self._store = store
        self._entry = entry
        self._position = 0
        self._chunk = b""
        self.crc32c = 0

    def read(self, size: int = -1, /) -> bytes:
        if not self._chunk and self._position < self._entry.size:
            end = min(self._entry.size, self._position + _CHUNK_BYTES)
            self._chunk = self._store.read_range(self._entry.path, self._position, end)
            self._position = end
            self.crc32c = google_crc32c.extend(self.crc32c, self._chunk)
        size = len(self._chunk) if size < 0 else size
        part, self._chunk = self._chunk[:size], self._chunk[size:]
        return part

    def close(self) -> None:
        self._chunk = b""


class ListLost(TemporaryError):
    """A list of unusable documents is gone, although its range's receipt names it."""


class ListCorrupt(DataError):
    """A list of unusable documents does not match its range's receipt."""


def _changed(store: Store, path: str) -> ListCorrupt:
    return ListCorrupt(
        "QuarantineCorrupt",
        f"{store.uri}/{path}, a list of unusable documents, does not match its range's receipt",
        next_step="start the same command again: it deletes this file and tokenizes the range again; if this error "
        "comes back, check the disk",
    )


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines without their ends; of the chunks, one at a time is held."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
