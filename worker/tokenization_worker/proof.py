"""Whether the shards that were written are still there: by receipts during a run, by the table afterwards."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from os.path import commonprefix
from typing import Any, Protocol

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.errors import DataError
from tokenization_worker.index import Index
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.receipts import ShardReceipt
from tokenization_worker.records import dump_json
from tokenization_worker.storage.base import Entry, NotFound, Store

_CHUNK_BYTES = 1 << 20
_MEND_TABLE = "put it back from a copy, or delete index.json and run the job again: both are written again"


class Digest(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def read_table(store: Store, path: str) -> list[dict[str, Any]]:
    """The rows of a `.jsonl.zst` table of ours; raises `DataError` if it is missing or damaged."""
    return [orjson.loads(line) for line in _table_lines(store, path)]


def begin_digest(content: Index) -> Digest:
    """The dataset's digest before its tables: a tokenizer's name is only a way to find it, and does not count."""
    anonymous = {key: value for key, value in content["tokenizer"].items() if key != "name"}
    return sha256(dump_json(content | {"tokenizer": anonymous}))


def require_tables(store: Store, index: Index) -> None:
    """Raise `DataError` unless all tables are there, and are those that the index was written with."""
    digest = begin_digest({key: value for key, value in index.items() if key not in ("digest", "dataKey", "run")})
    splits = {split["name"]: sha256() for split in index["splits"]}
    for line in _table_lines(store, layout.SHARDS_TABLE):
        digest.update(line)
        split = splits.get(orjson.loads(line).get("split"))
        if split is not None:
            split.update(line)
    for entry in index["splits"]:
        if splits[entry["name"]].hexdigest() != entry["digest"]:
            raise _table_corrupt(store, layout.SHARDS_TABLE, f"not the rows of split {entry['name']} in the index")
    for line in _table_lines(store, layout.QUARANTINE_TABLE):
        digest.update(line)
    if digest.hexdigest() != index["digest"]:
        raise _table_corrupt(store, layout.QUARANTINE_TABLE, "its rows and the index do not make the index's digest")
    files_digest = sha256()
    for line in _table_lines(store, layout.FILES_TABLE):
        files_digest.update(line)
    if files_digest.hexdigest() != index["run"].get("filesDigest"):
        raise _table_corrupt(store, layout.FILES_TABLE, "not the rows that the index was written with")


def _table_lines(store: Store, path: str) -> Iterator[bytes]:
    """A table's lines, each a JSON object."""
    try:
        packed = store.read(path)
    except NotFound as error:
        raise DataError("TableMissing", f"{store.uri}/{path} is missing", next_step=_MEND_TABLE) from error
    try:
        with zstd.open(BytesIO(packed)) as lines:
            for line in lines:
                if not isinstance(orjson.loads(line), dict):
                    raise _table_corrupt(store, path, f"found {line[:50]!r}, expected a JSON object")
                yield line
    except (zstd.ZstdError, EOFError, orjson.JSONDecodeError) as error:
        raise _table_corrupt(store, path, str(error)) from error


def _table_corrupt(store: Store, path: str, detail: str) -> DataError:
    return DataError("TableCorrupt", f"{store.uri}/{path}: {detail}", next_step=_MEND_TABLE)


def find_damaged_shards(store: Store, among: Container[tuple[str, int]] | None = None) -> frozenset[tuple[str, int]]:
    """(split, index) of every shard that is missing, or differs from the shards table in size or CRC32C, or
    whose documents sidecar is missing or has another SHA-256. `among`: those to look at; None: all.
    """
    damaged = set()
    for row in read_table(store, layout.SHARDS_TABLE):
        key = (row["split"], row["index"])
        if among is not None and key not in among:
            continue
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
