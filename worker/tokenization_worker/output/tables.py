"""The tables of a finished dataset: JSON lines under zstd, trusted only if they match the index's digest.

zstd frames hold a checksum of their content (those of older datasets do not). What the rows are is known by digests:
`splits[].digest` of the shards table's, `run.filesDigest` of the files table's, and the dataset's `digest` of the
quarantine table's, together with the index itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple, Protocol, cast

import orjson

from tokenization_worker.errors import DataError
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index, IndexContent, checksum_in
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.record import dump_json
from tokenization_worker.output.recovery import advise_table
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import NotFound, Store

_FEW = 100_000
"""Rows of a quarantine table that are read for the sake of an index without checksum: a tenth of a second."""

Row = dict[str, Any]


class ShardSums(NamedTuple):
    """SHA-256 of a shard's files, the main file first, and of its documents sidecar."""

    files: tuple[str, ...]
    documents: str


def files_of_row(row: Row) -> list[Row]:
    """The files of a row of the shards table, the main file first: `path`, `bytes`, `crc32c` and `sha256` of each."""
    return row.get("files") or [row]


class Digest(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def begin_digest(content: IndexContent) -> Digest:
    """The dataset's digest before its tables: a tokenizer's name is only a way to find it, and does not count."""
    anonymous = {key: value for key, value in content["tokenizer"].items() if key != "name"}
    return sha256(dump_json({**content, "tokenizer": anonymous}))


def read_shards_table(store: Store, index: Index) -> list[Row]:
    """The rows of the shards table; raises `DataError` unless they are those that the index was written with.

    An index without a checksum is checked by the dataset's digest, where that needs no long quarantine table.
    """
    rows = _split_rows(store, index)
    unusable = sum(index["conservation"]["quarantined"].values())
    if checksum_in(index) is None and unusable <= _FEW:
        has_table = store.stat(layout.QUARANTINE_TABLE) is not None
        if has_table or not unusable:
            _require_digest(store, index, has_rows=has_table)
    return rows


def key_of_row(row: Row) -> ShardKey:
    """Which shard a row of the shards table is of."""
    return ShardKey(row["split"], row["index"], row.get("group", ""))


def read_shard_sums(store: Store, among: Container[ShardKey]) -> dict[ShardKey, ShardSums]:
    """Of the shards in `among`, as the shards table has them."""
    return {
        key_of_row(row): ShardSums(tuple(file["sha256"] for file in files_of_row(row)), row.get("documentsSha256", ""))
        for _, row in table_rows(store, layout.SHARDS_TABLE)
        if key_of_row(row) in among
    }


def read_files_table(store: Store, index: Index, n_streams: int) -> list[Row]:
    """The rows of the files table; raises `DataError` unless they are those that the index was written with.

    `n_streams`: how many counts each of them has.
    """
    digest = sha256()
    rows = []
    for line, row in table_rows(store, layout.FILES_TABLE):
        digest.update(line)
        rows.append(row)
    _require_files_digest(store, index, digest)
    for number, row in enumerate(rows, 1):
        tokens = row.get("tokens", "")
        is_dropped = tokens is None
        if not isinstance(row.get("uri"), str) or not (is_dropped or _are_counts(tokens, n_streams)):
            raise _corrupt(store, layout.FILES_TABLE, f"row {number} has no uri, or not {n_streams} counts of tokens")
    return rows


def _are_counts(value: object, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(type(item) is int for item in value)


def require_tables(store: Store, index: Index) -> None:
    """Raise `DataError` unless all tables are there, and are those that the index was written with."""
    _split_rows(store, index)
    _require_digest(store, index, has_rows=True)
    digest = sha256()
    for line, _ in table_rows(store, layout.FILES_TABLE):
        digest.update(line)
    _require_files_digest(store, index, digest)


def _split_rows(store: Store, index: Index) -> list[Row]:
    """The rows of the shards table, if each split's have the split's digest."""
    path = layout.SHARDS_TABLE
    digests = {split["name"]: sha256() for split in index["splits"]}
    rows: list[Row] = []
    for line, row in table_rows(store, path):
        split = row.get("split")
        if not isinstance(split, str) or split not in digests:
            raise _corrupt(store, path, f"row {len(rows) + 1} is of split {split!r}, which the index does not have")
        digests[split].update(line)
        rows.append(row)
    for entry in index["splits"]:
        if digests[entry["name"]].hexdigest() != entry["digest"]:
            raise _corrupt(store, path, f"not the rows of split {entry['name']} that the index was written with")
    return rows


def _require_digest(store: Store, index: Index, *, has_rows: bool) -> None:
    """Raise unless index, shards table and quarantine table (if it `has_rows`) make the dataset's digest."""
    content = {key: value for key, value in index.items() if key not in ("digest", "dataKey", "run")}
    digest = begin_digest(cast(IndexContent, content))
    for path in (layout.SHARDS_TABLE, layout.QUARANTINE_TABLE) if has_rows else (layout.SHARDS_TABLE,):
        for line, _ in table_rows(store, path):
            digest.update(line)
    if digest.hexdigest() != index["digest"]:
        detail = f"its rows and those of {layout.INDEX} do not match the digest in {layout.INDEX}"
        raise _corrupt(store, layout.QUARANTINE_TABLE, detail)


def _require_files_digest(store: Store, index: Index, digest: Digest) -> None:
    expected = index["run"].get("filesDigest")
    if expected not in (None, digest.hexdigest()):
        raise _corrupt(store, layout.FILES_TABLE, "not the rows that the index was written with")


def table_rows(store: Store, path: str) -> Iterator[tuple[bytes, Row]]:
    """A table's lines, each with the row that it holds; raises `DataError` if it is missing or corrupt."""
    try:
        packed = store.read(path)
    except NotFound as error:
        raise DataError("TableMissing", f"{store.uri}/{path} is missing", next_step=advise_table(store)) from error
    try:
        with zstd.open(BytesIO(packed)) as lines:
            for line in lines:
                row = orjson.loads(line)
                if not isinstance(row, dict):
                    raise _corrupt(store, path, f"found {line[:50]!r}, expected a JSON object")
                yield line, row
    except (zstd.ZstdError, EOFError, orjson.JSONDecodeError) as error:
        raise _corrupt(store, path, str(error)) from error


def _corrupt(store: Store, path: str, detail: str) -> DataError:
    return DataError("TableCorrupt", f"{store.uri}/{path} is corrupt: {detail}", next_step=advise_table(store))
