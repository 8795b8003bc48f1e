"""The indexes of folders, which the readers of some formats need: made of the rows of the shards table, of no shard.

They are written before the index of the dataset, which holds their sizes and digests. One that is gone or was changed
is made again from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from tokenization_worker.formats.base import IndexedShard, ShardShape
from tokenization_worker.formats.registry import folder_index_of
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, place_bytes
from tokenization_worker.output.index import Index, IndexFolder
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.tables import Row, files_of_row, table_rows
from tokenization_worker.storage.base import NotFound, Store


class FolderFile(NamedTuple):
    """The index of a folder: the format of the shards that it lists, its path and its bytes."""

    format: str
    path: str
    data: bytes

    @property
    def entry(self) -> IndexFolder:
        """What the index of the dataset says of it."""
        digest = sha256(self.data).hexdigest()
        return {"format": self.format, "path": self.path, "bytes": len(self.data), "sha256": digest}


def make_folder_indexes(rows: Iterable[Row], shape: ShardShape) -> list[FolderFile]:
    """Of all shards. `rows`: of the shards table, in its order; `shape`: of the largest shard."""
    listed: dict[tuple[str, str], list[IndexedShard]] = {}
    for row in rows:
        for file in files_of_row(row):
            index = folder_index_of(file.get("format", ""))
            if index is not None:
                name = file["path"].rpartition("/")[2]
                shard = IndexedShard(name, file["bytes"], row["rows"] * shape.row_length, row["rows"])
                path = layout.beside(file["path"], index.name)
                listed.setdefault((file["format"], path), []).append(shard)
    made = []
    for (format, path), shards in listed.items():
        index = folder_index_of(format)
        assert index is not None, "it has been asked above"
        made.append(FolderFile(format, path, index.to_bytes(shards, shape)))
    return made


def write_folder_indexes(store: Store, files: Iterable[FolderFile], allow_replace: Callable[[str], None]) -> None:
    """Give the files their names; `allow_replace` as for `create_only.place_files`."""
    for file in files:
        place_bytes(store, file.path, file.data, allow_replace=partial(allow_replace, file.path))


def find_changed_folder_indexes(store: Store, index: Index) -> list[str]:
    """The paths of those that are missing, or are not what the index of the dataset says."""
    return [entry["path"] for entry in index.get("folderIndexes", ()) if not _is_whole(store, entry)]


def _is_whole(store: Store, entry: IndexFolder) -> bool:
    try:
        return sha256(store.read(entry["path"])).hexdigest() == entry["sha256"]
    except NotFound:
        return False


def restore_folder_indexes(store: Store, index: Index) -> list[str]:
    """Write those again that are missing or changed; returns their paths.

    Raises `Disagreement` where the table does not give what the index says.
    """
    changed = find_changed_folder_indexes(store, index)
    if not changed:
        return []
    rows = (row for _, row in table_rows(store, layout.SHARDS_TABLE))
    files = {file.path: file for file in make_folder_indexes(rows, Naming.planned(index["data"]).largest)}
    if [file.entry for file in files.values()] != index.get("folderIndexes"):
        raise Disagreement(
            "NotDeterministic",
            f"{store.uri}/{changed[0]}: made from {layout.SHARDS_TABLE} again, it is not the file that {layout.INDEX} "
            "names",
            next_step="use the version of this program that wrote the dataset, or restore the file from a copy",
        )
    write_folder_indexes(store, (files[path] for path in changed), lambda path: None)
    return changed
