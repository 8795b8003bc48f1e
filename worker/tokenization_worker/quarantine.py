"""The list of unusable documents: a range's own, and all of them at the end.

A range's list is JSON lines in source order, named by its digest so that two writers of one range cannot
overwrite each other's. Its receipt says which list counts. The final table adds line numbers, which are
known only when every range before has counted its lines. A list may be longer than memory: it is written
and read in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Self

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.commit import create_chunks
from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.parallel import map_at_once
from tokenization_worker.readers.documents import FileSlice, Rejected
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.temporary import map_temporary_errors

_IN_MEMORY_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
_SHORT_BYTES = 256 << 10


class QuarantineList:
    """One range's list while it grows: in memory at first, in the temporary folder when it is long.

    Raises `TemporaryError` where that is full.
    """

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with suppress(OSError):  # it writes what a full disk has not taken; nobody will read it
            self._file.close()

    @map_temporary_errors()
    def add(self, number: int, source: FileSlice, item: Rejected) -> None:
        """Append one document of the range's `number`-th slice."""
        row = {
            "slice": number,
            "file": source.file,
            "uri": source.uri,
            "position": item.position,
            "record": item.record,
            "reason": item.reason,
            "detail": item.detail,
            "excerpt": item.excerpt,
        }
        self._file.write(orjson.dumps(row) + b"\n")

    @map_temporary_errors()
    def mark(self) -> int:
        return self._file.tell()

    @map_temporary_errors()
    def drop_from(self, mark: int) -> None:
        """Forget what was added since `mark`: its file is dropped whole."""
        self._file.seek(mark)
        self._file.truncate()

    def store(self, store: Store, epoch: int, range_id: int) -> str:
        """Write the list; returns the digest that names it, "" for an empty one."""
        if not self._file.tell():
            return ""
        digest = sha256()
        for chunk in self._chunks():
            digest.update(chunk)
        name = digest.hexdigest()[:32]
        create_chunks(store, layout.quarantine_path(epoch, range_id, name), self._chunks())
        return name

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
    """The list whole and as it was written; None where it is long, or anything is wrong with it."""
    try:
        data = store.read_range(layout.quarantine_path(epoch, range_id, digest), 0, _SHORT_BYTES + 1)
    except NotFound:
        return None
    return data if len(data) <= _SHORT_BYTES and sha256(data).hexdigest()[:32] == digest else None


def read_range_list(store: Store, epoch: int, range_id: int, digest: str) -> Iterator[dict[str, Any]]:
    """The rows of one range's list; raises `TemporaryError` if it is gone, `DataError` if it is another one.

    It is read twice: no row is given out before the digest of all of them is known to be right.
    """
    if not digest:
        return
    path = layout.quarantine_path(epoch, range_id, digest)
    try:
        for _ in _stored_chunks(store, path, digest):
            pass
        for line in _lines(_stored_chunks(store, path, digest)):
            yield orjson.loads(line)
    except NotFound as error:
        raise TemporaryError(
            "QuarantineLost",
            f"{store.uri}/{path} is gone: the list of unusable documents of range {range_id}",
            next_step="start the same command again: it is written again",
        ) from error
    except orjson.JSONDecodeError as error:
        raise _changed(store, path) from error


def _stored_chunks(store: Store, path: str, digest: str) -> Iterator[bytes]:
    """The list as it is stored; raises at its end if it has another digest: `TemporaryError` where the store says that
    it holds other bytes than came, else `DataError`.
    """
    entry = store.stat(path)
    if entry is None:
        raise NotFound(path)
    found, crc32c = sha256(), 0
    for start in range(0, entry.size, _CHUNK_BYTES):
        chunk = store.read_range(path, start, min(entry.size, start + _CHUNK_BYTES))
        found.update(chunk)
        crc32c = google_crc32c.extend(crc32c, chunk)
        yield chunk
    if found.hexdigest()[:32] == digest:
        return
    if entry.crc32c not in (None, crc32c):
        raise TemporaryError(
            "StorageFailed",
            f"{store.uri}/{path}: came with CRC32C {crc32c:08x}, the store has {entry.crc32c:08x}",
            next_step="start the same command again",
        )
    raise _changed(store, path)


def _changed(store: Store, path: str) -> DataError:
    return DataError(
        "QuarantineCorrupt",
        f"{store.uri}/{path}, a list of unusable documents, is not what its range's receipt says",
        next_step="remove that file and start the same command again: it is written again",
    )


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines without their ends; of the chunks, one at a time is held."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
