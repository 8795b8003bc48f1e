"""Proving a committed dataset for another run: every shard is there, byte for byte."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.errors import DataError
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import NotFound, Store

_CHUNK_BYTES = 1 << 20


def read_table(store: Store, path: str) -> list[dict[str, Any]]:
    """The rows of a `.jsonl.zst` table of ours; raises `DataError` if it is missing or damaged."""
    try:
        data = zstd.decompress(store.read(path))
    except NotFound as error:
        raise DataError("TableMissing", f"{store.uri}/{path} is missing") from error
    except zstd.ZstdError as error:
        raise DataError("TableCorrupt", f"{store.uri}/{path}: {error}") from error
    return [orjson.loads(line) for line in data.splitlines()]


def find_damaged_shards(store: Store) -> frozenset[tuple[str, int]]:
    """(split, index) of every shard that is missing, or differs from the shards table in size or CRC32C, or
    whose documents sidecar is missing or has another SHA-256.
    """
    damaged = set()
    for row in read_table(store, layout.SHARDS_TABLE):
        if not (_is_whole(store, row) and _has_sidecar(store, row)):
            damaged.add((row["split"], row["index"]))
    return frozenset(damaged)


def _is_whole(store: Store, row: dict[str, Any]) -> bool:
    entry = store.stat(row["path"])
    if entry is None or entry.size != row["bytes"]:
        return False
    return bool(_crc32c(store, row["path"], entry.crc32c) == row["crc32c"])


def _has_sidecar(store: Store, row: dict[str, Any]) -> bool:
    try:
        sidecar = store.read(layout.documents_path(row["split"], row["index"]))
    except NotFound:
        return False
    return bool(sha256(sidecar).hexdigest() == row["documentsSha256"])


def _crc32c(store: Store, path: str, known: int | None) -> str:
    crc = 0
    if known is not None:
        crc = known
    else:
        entry = store.stat(path)
        for start in range(0, entry.size if entry else 0, _CHUNK_BYTES):
            crc = google_crc32c.extend(crc, store.read_range(path, start, start + _CHUNK_BYTES))
    return f"{crc:08x}"
