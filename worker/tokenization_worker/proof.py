"""Whether the shards that were written are still there: by receipts during a run, by the table afterwards."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any, Protocol

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.carried import digest_of
from tokenization_worker.errors import DataError
from tokenization_worker.index import Index
from tokenization_worker.parallel import map_at_once
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.receipts import ShardReceipt
from tokenization_worker.records import dump_json
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.listing import list_known

_CHUNK_BYTES = 1 << 20
_MEND_TABLE = "put it back from a copy, or delete index.json and run the job again: both are written again"


class Digest(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def read_table(store: Store, path: str) -> list[dict[str, Any]]:
    """The rows of a `.jsonl.zst` table of ours; raises `DataError` if it is missing or damaged."""
    return [row for _, row in _table_rows(store, path)]


def begin_digest(content: Index) -> Digest:
    """The dataset's digest before its tables: a tokenizer's name is only a way to find it, and does not count."""
    anonymous = {key: value for key, value in content["tokenizer"].items() if key != "name"}
    return sha256(dump_json(content | {"tokenizer": anonymous}))


def require_tables(store: Store, index: Index) -> None:
    """Raise `DataError` unless all tables are there, and are those that the index was written with."""
    digest = begin_digest({key: value for key, value in index.items() if key not in ("digest", "dataKey", "run")})
    splits = {split["name"]: sha256() for split in index["splits"]}
    for line, row in _table_rows(store, layout.SHARDS_TABLE):
        digest.update(line)
        split = splits.get(row.get("split"))
        if split is not None:
            split.update(line)
    for entry in index["splits"]:
        if splits[entry["name"]].hexdigest() != entry["digest"]:
            raise _table_corrupt(store, layout.SHARDS_TABLE, f"not the rows of split {entry['name']} in the index")
    for line, _ in _table_rows(store, layout.QUARANTINE_TABLE):
        digest.update(line)
    if digest.hexdigest() != index["digest"]:
        raise _table_corrupt(store, layout.QUARANTINE_TABLE, "its rows and the index do not make the index's digest")
    files_digest = sha256()
    for line, _ in _table_rows(store, layout.FILES_TABLE):
        files_digest.update(line)
    if files_digest.hexdigest() != index["run"].get("filesDigest"):
        raise _table_corrupt(store, layout.FILES_TABLE, "not the rows that the index was written with")


def _table_rows(store: Store, path: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """A table's lines, each with the row that it holds."""
    try:
        packed = store.read(path)
    except NotFound as error:
        raise DataError("TableMissing", f"{store.uri}/{path} is missing", next_step=_MEND_TABLE) from error
    try:
        with zstd.open(BytesIO(packed)) as lines:
            for line in lines:
                row = orjson.loads(line)
                if not isinstance(row, dict):
                    raise _table_corrupt(store, path, f"found {line[:50]!r}, expected a JSON object")
                yield line, row
    except (zstd.ZstdError, EOFError, orjson.JSONDecodeError) as error:
        raise _table_corrupt(store, path, str(error)) from error


def _table_corrupt(store: Store, path: str, detail: str) -> DataError:
    return DataError("TableCorrupt", f"{store.uri}/{path}: {detail}", next_step=_MEND_TABLE)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a shard and its documents sidecar were when they were written. `version`: "" where that is not known."""

    split: str
    index: int
    path: str
    size: int
    crc32c: int
    documents_sha256: str
    version: str = ""


def find_damaged_shards(store: Store, among: Container[tuple[str, int]] | None = None) -> frozenset[tuple[str, int]]:
    """(split, index) of every shard that is missing, or differs from the shards table in size or CRC32C, or
    whose documents sidecar is missing or has another SHA-256. `among`: those to look at; None: all.
    """
    return _find_changed(
        store,
        [
            _Written(
                row["split"], row["index"], row["path"], row["bytes"], int(row["crc32c"], 16), row["documentsSha256"]
            )
            for _, row in _table_rows(store, layout.SHARDS_TABLE)
            if among is None or (row["split"], row["index"]) in among
        ],
    )


def find_changed_shards(store: Store, receipts: Iterable[ShardReceipt]) -> list[ShardReceipt]:
    """The receipts whose shard or documents sidecar is gone or differs.

    Both are listed. A shard is read only where the store keeps no checksum and the file is not the one that was
    written, a sidecar where its metadata does not say what it holds.
    """
    shards = list(receipts)
    changed = _find_changed(
        store,
        [_Written(r.split, r.index, r.path, r.bytes, r.crc32c, r.documents_sha256, r.version) for r in shards],
    )
    return [shard for shard in shards if (shard.split, shard.index) in changed]


def _find_changed(store: Store, shards: list[_Written]) -> frozenset[tuple[str, int]]:
    changed: set[tuple[str, int]] = set()
    for split in {shard.split for shard in shards}:  # without folders in `output.path` theirs holds all that is ours
        mine = [shard for shard in shards if shard.split == split]
        changed.update((split, index) for index in _changed_shards(store, mine))
        changed.update((split, index) for index in _changed_sidecars(store, mine))
    return frozenset(changed)


def _changed_shards(store: Store, shards: list[_Written]) -> Iterator[int]:
    missing = {shard.path: shard for shard in shards}
    for entry in list_known(store, list(missing)):
        shard = missing.pop(entry.path, None)
        if shard is None or entry.version == shard.version:
            continue
        if not _holds(store, entry, shard.size, shard.crc32c):
            yield shard.index
    for shard in missing.values():
        yield shard.index


def _changed_sidecars(store: Store, shards: list[_Written]) -> Iterator[int]:
    untold = {layout.documents_path(shard.split, shard.index): shard for shard in shards}
    for entry in list_known(store, list(untold)) if store.connections > 1 else ():  # local files carry no metadata
        digest = digest_of(entry)
        if digest is not None and entry.path in untold:
            shard = untold.pop(entry.path)
            if digest != shard.documents_sha256:
                yield shard.index
    is_whole = map_at_once(lambda shard: _has_sidecar(store, shard), untold.values(), store.connections)
    for shard, whole in zip(untold.values(), is_whole, strict=True):
        if not whole:
            yield shard.index


def _has_sidecar(store: Store, shard: _Written) -> bool:
    try:
        sidecar = store.read(layout.documents_path(shard.split, shard.index))
    except NotFound:
        return False
    return sha256(sidecar).hexdigest() == shard.documents_sha256


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
