"""Makes the splits of a dataset from its shards table: which shards follow each other in which stream of tokens.

Where groups are in paths, each of them has streams of its own. A split is then also the shards of all its groups, one
group after the other; its `groups` are the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from tokenization_worker.api.data import PARTS, Delimiters, ShuffleUnit, has_packed_rows
from tokenization_worker.dataset.reopening import Reopening
from tokenization_worker.dataset.shard import NO_PARTS_FILE, Shard, StoredParts
from tokenization_worker.dataset.split import Split
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.formats.registry import preferred_format
from tokenization_worker.output.index import Index
from tokenization_worker.output.naming import planned_groups
from tokenization_worker.output.tables import Row, files_of_row
from tokenization_worker.storage.base import Store

Reopen = Callable[[str, str], Reopening[Split]]
"""How another process gets a split, or the part of a group."""


def make_splits(
    store: Store,
    index: Index,
    rows: Iterable[Row],
    dtype: np.dtype[np.unsignedinteger],
    delimiters: Delimiters,
    reopen: Reopen,
) -> dict[str, Split]:
    """The splits by name, in the manifest's order. `rows`: of the shards table."""
    names = [split["name"] for split in index["splits"]]
    groups = planned_groups(index["data"])
    in_order: dict[tuple[str, str], list[Row]] = {(group, name): [] for group in groups or ("",) for name in names}
    for row in sorted(rows, key=lambda row: int(row["index"])):
        in_order[row.get("group", ""), row["split"]].append(row)

    def part(name: str, group: str, stream: Stream, shards: tuple[Shard, ...]) -> Split:
        documents = sum(shard.documents for shard in shards)
        return Split(name, documents, stream, shards, delimiters, reopen(name, group), _row_length(index), group)

    parts: dict[str, dict[str, Split]] = {name: {} for name in names}
    for group in groups or ("",):
        shards = {name: [_shard(store, index, row, dtype) for row in in_order[group, name]] for name in names}
        for name, (stream, mine) in _make_streams(index, shards, dtype).items():
            parts[name][group] = part(name, group, stream, mine)
    if not groups:
        return {name: mine[""] for name, mine in parts.items()}
    return {name: _join(name, mine, delimiters, reopen) for name, mine in parts.items()}


def _join(name: str, parts: Mapping[str, Split], delimiters: Delimiters, reopen: Reopen) -> Split:
    """A split of all groups; its stream ends where a group ends, and no document goes on there."""
    shards = _follow_each_other([shard for part in parts.values() for shard in part.shards])
    first = next(iter(parts.values()))
    stream = Stream(-1, shards, first.dtype, are_pieces_apart=first.stream.are_pieces_apart)
    documents = sum(part.documents for part in parts.values())
    return Split(name, documents, stream, shards, delimiters, reopen(name, ""), first.row_length, groups=parts)


def _are_pieces_apart(index: Index) -> bool:
    output = index["data"]["output"]
    are_rows_shuffled: bool = output.get("shuffle", {}).get("unit") == ShuffleUnit.ROW
    return are_rows_shuffled or has_packed_rows(output)


def _make_streams(
    index: Index, shards: Mapping[str, list[Shard]], dtype: np.dtype[np.unsignedinteger]
) -> dict[str, tuple[Stream, tuple[Shard, ...]]]:
    """The stream of each split of one group, and the split's shards in it: leading splits have one together."""
    if index["data"]["output"]["splits"][0]["share"] is not None:
        found = {}
        for number, (name, mine) in enumerate(shards.items()):
            placed = _follow_each_other(mine)
            found[name] = (Stream(number, placed, dtype, are_pieces_apart=_are_pieces_apart(index)), placed)
        return found
    placed = _follow_each_other([shard for mine in shards.values() for shard in mine])
    whole = Stream(0, placed, dtype, are_pieces_apart=_are_pieces_apart(index))
    return {name: (whole, tuple(shard for shard in placed if shard.split == name)) for name in shards}


def _follow_each_other(shards: Iterable[Shard]) -> tuple[Shard, ...]:
    """The shards with their places in one stream."""
    placed: list[Shard] = []
    for shard in shards:
        placed.append(replace(shard, start=placed[-1].end if placed else 0))
    return tuple(placed)


def _shard(store: Store, index: Index, row: Row, dtype: np.dtype[np.unsignedinteger]) -> Shard:
    format = preferred_format(index["data"]["output"]["formats"])
    row_length = _row_length(index)
    of_parts = (file for file in files_of_row(row) if file.get("format") == PARTS)
    parts = [StoredParts(file["path"], file["bytes"], int(file["crc32c"], 16), file["sha256"]) for file in of_parts]
    return Shard(
        store,
        format,
        _files_of(row, format),
        dtype,
        row["split"],
        row["index"],
        tokens=row["rows"] * row_length if row_length else row["tokens"],
        documents=row["documents"],
        start=0,
        documents_sha256=row.get("documentsSha256", ""),
        row_length=row_length,
        parts=parts[0] if parts else NO_PARTS_FILE,
        group=row.get("group", ""),
    )


def _row_length(index: Index) -> int:
    """0 where the tokens are one run."""
    length: int = index["data"]["output"].get("sequence", {}).get("length", 0)
    return length


def _files_of(row: Row, format: str) -> tuple[tuple[str, int], ...]:
    """Path and size of the shard's files that are of this format, the main file first."""
    return tuple((file["path"], file["bytes"]) for file in files_of_row(row) if file.get("format", format) == format)
