"""Whether the shards that were written are still there: by receipts during a run, by the table afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from os.path import commonprefix
from typing import Any

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.errors import DataError
from tokenization_worker.index import Index
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.receipts import ShardReceipt
from tokenization_worker.storage.base import Entry, NotFound, Store

_CHUNK_BYTES = 1 << 20
_MEND_TABLE = "put it back from a copy, or delete index.json and run the job again: both are written again"


def read_table(store: Store, path: str) -> list[dict[str, Any]]:
    """The rows of a `.jsonl.zst` table of ours; raises `DataError` if it is missing or damaged."""
    return list(_table_rows(store, path))


def require_tables(store: Store, index: Index) -> None:
    """Raise `DataError` unless all tables are there, each with as many rows as the index counts."""
    conservation = index["conservation"]
    counts = {
        layout.SHARDS_TABLE: sum(split["shards"] for split in index["splits"]),
        layout.FILES_TABLE: sum(conservation["files"].values()),
        layout.QUARANTINE_TABLE: sum(conservation["quarantined"].values()),
    }
    for path, expected in counts.items():
        found = sum(1 for _ in _table_rows(store, path))
        if found != expected:
            raise _table_corrupt(store, path, f"{found:,} rows, the index says {expected:,}")


def _table_rows(store: Store, path: str) -> Iterator[dict[str, Any]]:
    try:
        packed = store.read(path)
    except NotFound as error:
        raise DataError("TableMissing", f"{store.uri}/{path} is missing", next_step=_MEND_TABLE) from error
    try:
        with zstd.open(BytesIO(packed)) as lines:
            for line in lines:
                yield orjson.loads(line)
    except (zstd.ZstdError, EOFError, orjson.JSONDecodeError) as error:
        raise _table_corrupt(store, path, str(error)) from error


def _table_corrupt(store: Store, path: str, detail: str) -> DataError:
    return DataError("TableCorrupt", f"{store.uri}/{path}: {detail}", next_step=_MEND_TABLE)


def find_damaged_shards(store: Store) -> frozenset[tuple[str, int]]:
    """(split, index) of every shard that is missing, or differs from the shards table in size or CRC32C, or
    whose documents sidecar is missing or has another SHA-256.
    """
    damaged = set()
    for row in read_table(store, layout.SHARDS_TABLE):
        key = (row["split"], row["index"])
        if not (_is_whole(store, row) and _has_sidecar(store, *key, row["documentsSha256"])):
            damaged.add(key)
    return frozenset(damaged)


def find_changed_shards(store: Store, receipts: Iterable[ShardReceipt]) -> list[ShardReceipt]:
    """The receipts whose shard or documents sidecar is gone or differs.

    Shards are listed, and read only where the store keeps no checksum and the file is not the one that was
    written; sidecars are small and read.
    """
    shards = list(receipts)
    found = {entry.path: entry for prefix in _prefixes(shards) for entry in store.list(prefix)}
    return [
        shard
        for shard in shards
        if not _is_as_written(store, shard, found.get(shard.path))
        or not _has_sidecar(store, shard.split, shard.index, shard.documents_sha256)
    ]


def _prefixes(shards: list[ShardReceipt]) -> list[str]:
    """What the shards of a split begin with: without folders in `output.path` their folder holds all that is ours."""
    paths: dict[str, list[str]] = {}
    for shard in shards:
        paths.setdefault(shard.split, []).append(shard.path)
    return [commonprefix(mine) for mine in paths.values()]  # noqa: RUF071  a listing takes any prefix


def _is_as_written(store: Store, shard: ShardReceipt, entry: Entry | None) -> bool:
    if entry is None:
        return False
    return entry.version == shard.version or _holds(store, entry, shard.bytes, shard.crc32c)


def _is_whole(store: Store, row: dict[str, Any]) -> bool:
    entry = store.stat(row["path"])
    return entry is not None and _holds(store, entry, row["bytes"], int(row["crc32c"], 16))


def _has_sidecar(store: Store, split: str, index: int, digest: str) -> bool:
    try:
        sidecar = store.read(layout.documents_path(split, index))
    except NotFound:
        return False
    return sha256(sidecar).hexdigest() == digest


def _holds(store: Store, entry: Entry, size: int, crc32c: int) -> bool:
    """Whether the object has this size and CRC32C, by the store's word or by reading it."""
    if entry.size != size:
        return False
    if entry.crc32c is not None:
        return entry.crc32c == crc32c
    crc = 0
    for start in range(0, size, _CHUNK_BYTES):
        crc = google_crc32c.extend(crc, store.read_range(entry.path, start, start + _CHUNK_BYTES))
    return bool(crc == crc32c)
