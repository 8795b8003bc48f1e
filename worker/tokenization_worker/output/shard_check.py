"""Checks that written shards still exist unchanged: by receipts during a run, by the shards table afterwards."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.ledger.receipts import ShardReceipt, WrittenFile
from tokenization_worker.output.object_metadata import digest_of
from tokenization_worker.output.tables import Row, files_of_row, key_of_row, table_rows
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.checksums import crc32c_of_bytes
from tokenization_worker.storage.listing import list_known

_READS_AT_ONCE = 4
"""Shards of a local disk that are read at once: what fills a disk; their checksums are computed one after the other."""


@dataclass(frozen=True, slots=True)
class _File:
    """What a file of a shard was when it was written. `version`: "" where that is not known."""

    path: str
    size: int
    crc32c: int
    version: str = ""


@dataclass(frozen=True, slots=True)
class _Written:
    """What a shard and its documents sidecar, of which it may have none, were when they were written."""

    key: ShardKey
    files: tuple[_File, ...]
    documents_sha256: str

    @property
    def sidecar(self) -> str | None:
        """Its path; None of a shard of rows, whose parts are one of its files."""
        return layout.documents_path(*self.key) if self.documents_sha256 else None

    @classmethod
    def by_receipt(cls, receipt: ShardReceipt) -> Self:
        files = tuple(_File(file.path, file.bytes, file.crc32c, file.version) for file in receipt.files)
        return cls(receipt.key, files, receipt.documents_sha256)

    @classmethod
    def by_row(cls, row: Row) -> Self:
        files = tuple(_File(file["path"], file["bytes"], int(file["crc32c"], 16)) for file in files_of_row(row))
        return cls(key_of_row(row), files, row.get("documentsSha256", ""))


def find_mismatched_shards(store: Store, among: Container[ShardKey] | None = None) -> frozenset[ShardKey]:
    """Every shard of which a file is missing, or differs from the shards table in size or CRC32C,
    or whose documents sidecar is missing or has another SHA-256. `among`: those to look at; None: all.
    """
    return _find_changed(
        store,
        [
            _Written.by_row(row)
            for _, row in table_rows(store, layout.SHARDS_TABLE)
            if among is None or key_of_row(row) in among
        ],
    )


def find_missing(store: Store) -> list[str]:
    """Paths of shards' files that are missing or have another size than the shards table says, and of sidecars that are
    missing, by listings alone. Raises `DataError` if the table cannot be read.
    """
    shards = [_Written.by_row(row) for _, row in table_rows(store, layout.SHARDS_TABLE)]
    missing: list[str] = []
    for mine in _by_folder(shards):
        sizes = {file.path: file.size for shard in mine for file in shard.files}
        for entry in _list_files(store, mine):
            if sizes.get(entry.path) == entry.size:
                del sizes[entry.path]
        sidecars = dict.fromkeys(shard.sidecar for shard in mine if shard.sidecar is not None)
        for entry in list_known(store, list(sidecars)):
            sidecars.pop(entry.path, None)
        missing += [*sizes, *sidecars]
    return missing


def find_changed_shards(store: Store, receipts: Iterable[ShardReceipt]) -> list[ShardReceipt]:
    """The receipts of which a shard's file or the documents sidecar is gone or differs.

    Both are listed. A file is read only where the store keeps no checksum and the file is not the one that was
    written, a sidecar where its metadata does not say what it holds.
    """
    shards = list(receipts)
    changed = _find_changed(store, [_Written.by_receipt(shard) for shard in shards])
    return [shard for shard in shards if shard.key in changed]


def find_changed_bytes(
    store: Store, receipts: Iterable[ShardReceipt], on_progress: Callable[[int, int], None]
) -> dict[ShardKey, WrittenFile]:
    """The shards whose bytes no longer match their receipts, each with its first such file.

    Reads all shards, whatever their names, sizes and times. Calls `on_progress` with the shards and bytes read so far,
    before the first shard and after each.

    Nothing is read where the store compares what it keeps with a checksum of its own.
    """
    shards = list(receipts)
    if not shards or store.local_path("") is None:
        return {}
    on_progress(0, 0)
    changed: dict[ShardKey, WrittenFile] = {}
    bytes_read = 0
    found = map_at_once(lambda shard: _first_changed_file(store, shard), shards, max(store.connections, _READS_AT_ONCE))
    for number, (shard, file) in enumerate(zip(shards, found, strict=True), 1):
        if file is not None:
            changed[shard.key] = file
        bytes_read += sum(file.bytes for file in shard.files)
        on_progress(number, bytes_read)
    return changed


def _first_changed_file(store: Store, shard: ShardReceipt) -> WrittenFile | None:
    return next((file for file in shard.files if not _is_whole(store, file)), None)


def _is_whole(store: Store, file: WrittenFile) -> bool:
    try:
        return crc32c_of_bytes(store, file.path, file.bytes) == file.crc32c
    except NotFound:
        return False


def _find_changed(store: Store, shards: list[_Written]) -> frozenset[ShardKey]:
    changed: set[ShardKey] = set()
    for mine in _by_folder(shards):  # without folders in `output.path` theirs holds all that is ours
        changed.update(_changed_shards(store, mine))
        changed.update(_changed_sidecars(store, mine))
    return frozenset(changed)


def _by_folder(shards: list[_Written]) -> Iterator[list[_Written]]:
    """The shards of each split and group."""
    folders: dict[tuple[str, str], list[_Written]] = {}
    for shard in shards:
        folders.setdefault((shard.key.group, shard.key.split), []).append(shard)
    yield from folders.values()


def _list_files(store: Store, shards: list[_Written]) -> Iterator[Entry]:
    """What has the name of a file of these shards, and maybe others: the files of one kind are in one folder."""
    for files in zip(*(shard.files for shard in shards), strict=False):
        yield from list_known(store, [file.path for file in files])


def _changed_shards(store: Store, shards: list[_Written]) -> Iterator[ShardKey]:
    missing = {file.path: (shard.key, file) for shard in shards for file in shard.files}
    for entry in _list_files(store, shards):
        if entry.path not in missing:
            continue
        key, file = missing.pop(entry.path)
        if entry.version != file.version and not _holds(store, entry, file.size, file.crc32c):
            yield key
    for key, _ in missing.values():
        yield key


def _changed_sidecars(store: Store, shards: list[_Written]) -> Iterator[ShardKey]:
    unlisted = {shard.sidecar: shard for shard in shards if shard.sidecar is not None}
    for entry in list_known(store, list(unlisted)) if store.connections > 1 else ():  # local files carry no metadata
        digest = digest_of(entry)
        if digest is not None and entry.path in unlisted:
            shard = unlisted.pop(entry.path)
            if digest != shard.documents_sha256:
                yield shard.key
    sums = {path: shard.documents_sha256 for path, shard in unlisted.items()}
    is_whole = map_at_once(lambda item: _holds_sum(store, *item), sums.items(), store.connections)
    for shard, whole in zip(unlisted.values(), is_whole, strict=True):
        if not whole:
            yield shard.key


def _holds_sum(store: Store, path: str, digest: str) -> bool:
    try:
        return sha256(store.read(path)).hexdigest() == digest
    except NotFound:
        return False


def _holds(store: Store, entry: Entry, size: int, crc32c: int) -> bool:
    """Whether the object has this size and CRC32C, by the store's word or by reading it."""
    if entry.size != size:
        return False
    found = crc32c_of_bytes(store, entry.path, size) if entry.crc32c is None else entry.crc32c
    return found == crc32c
