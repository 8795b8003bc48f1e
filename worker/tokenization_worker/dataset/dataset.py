"""Reading a finished dataset: tokens by number, shards as arrays, and where a token comes from.

    dataset = open_dataset("out")
    train = dataset["train"]
    len(train)                       # tokens
    train.tokens(0, 2049)            # numpy array, across shards; also train[:2049]
    np.asarray(train)                # all of them
    train.read_documents()           # the tokens of one document after the other
    dataset.decode(train[:100])      # text
    dataset.locate("train", 1_000)   # the document that this token belongs to
    train.groups["code"]             # the part of a group, where output.path holds {group}

Everything comes from the index, the shards table and the documents sidecars; the source is not needed. A
dataset can be pickled and sent to loader processes. `split` and `token_stream` read its tokens.

What it answers with is checked before: the index by its checksum, tables by the digests in the index, a sidecar by its
SHA-256, a shard by its size and its header. The tokens in a shard are not: that would read every shard whole. `tokjob
verify` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenization_worker.api.arguments import require_place
from tokenization_worker.api.data import Delimiters, has_packed_rows
from tokenization_worker.dataset.numbers import require_whole
from tokenization_worker.dataset.reopening import Reopening
from tokenization_worker.dataset.shard import Shard as Shard
from tokenization_worker.dataset.split import Split as Split
from tokenization_worker.dataset.splits import make_splits
from tokenization_worker.dataset.token_stream import Stream as Stream
from tokenization_worker.errors import SpecError
from tokenization_worker.formats.base import TokenArray as TokenArray
from tokenization_worker.formats.sidecar import ScatteredDocuments
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index, require_index
from tokenization_worker.output.naming import planned_groups, require_known_formats
from tokenization_worker.output.tables import read_files_table, read_shards_table
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.recorded import load_recorded

_DTYPES: dict[str, np.dtype[np.unsignedinteger]] = {"UInt16": np.dtype("<u2"), "UInt32": np.dtype("<u4")}


def open_dataset(uri: str | os.PathLike[str]) -> Dataset:
    """The dataset at `uri`: a local folder or gs://bucket/prefix, the output.uri of a finished job.

    Raises `SpecError("NotADataset")`, naming what it found, if no run has finished there, and `DataError` if index or
    shards table are corrupt. Reads these two and no shard.
    """
    require_place("open_dataset", uri)
    store = open_store(os.fspath(uri).rstrip("/") or "/")
    index = require_index(store)
    require_known_formats(index["data"]["output"]["formats"], store.uri, layout.INDEX)
    return Dataset(store, index)


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """The document that a token belongs to.

    `start` is its first token, counted in the split (negative: it begins in the split before), `tokens` its
    length with the delimiter. `shard` (within the split), `path` and `entry` say which entry of which shard's
    sidecar the token asked for lies in.

    `uri` is the source file. `position` is the document's place in it, byte offset of the decompressed file or
    row, if the dataset records it (that of every shard's first document); otherwise None, and the document is the
    `documents_after`-th, from 0, of the split's stream that stands at or after `known_position`.
    `show.show_documents` finds its position and its id by reading on from there.

    Where rows are shuffled or packed, `start` and `tokens` are those of the piece of the document that stands in the
    token's row, and `offset` is how many tokens of the document come before this piece.

    `group`: the file's, "" where there are none. Where groups are in paths, `start` and `shard` count in the group's
    part of the split.
    """

    split: str
    start: int
    tokens: int
    shard: int
    path: str
    entry: int
    uri: str
    position: int | None
    known_position: int
    documents_after: int
    group: str = ""
    offset: int = 0


class SplitUnknown(SpecError, KeyError):
    """A dataset has no split of that name: also a `KeyError`, as of any mapping."""


class TokenIsPadding(SpecError, LookupError):
    """A token fills the end of a row, and is of no document."""


class Dataset(Mapping[str, Split]):
    """A finished dataset: splits by name, in the manifest's order. `index` is index.json as it is. `groups`: the names
    of the source's groups in order; where they are in paths, each split has a part of each (`split.groups`).

    `begin_id`, `end_id`: the tokens before and after every document; None where none stands there. `delimiter_id`: the
    one of them that there is, None where there are both or none.
    """

    def __init__(self, store: Store, index: Index) -> None:
        self._store = store
        self.uri = store.uri
        self.index = index
        self.dtype = _DTYPES[index["dtype"]]
        self.tokenizer: str = index["tokenizer"]["name"]
        self.vocab_size: int = index["tokenizer"]["vocabularySize"]
        self.delimiter_id: int | None = index["tokenizer"]["delimiterId"]
        self._delimiters = Delimiters.from_json(index["data"]["tokenizer"]["delimiter"])
        sequence = index["data"]["output"].get("sequence")
        self.row_length: int | None = None if sequence is None else sequence["length"]
        self.pad_id: int | None = None if sequence is None else sequence["pad"]
        self.begin_id: int | None = self._delimiters.begin
        self.end_id: int | None = self._delimiters.end
        self.groups: tuple[str, ...] = tuple(group["name"] for group in index.get("groups", ()))
        self._splits = self._read_splits()

    def __repr__(self) -> str:
        return f"Dataset({self.uri!r}, {list(self._splits.values())})"

    def __reduce__(self) -> tuple[type[Dataset], tuple[Store, Index]]:
        return Dataset, (self._store, self.index)

    def __getitem__(self, name: str) -> Split:
        """The split `name`; raises `SplitUnknown`, a `KeyError`, which names those that there are."""
        try:
            return self._splits[name]
        except KeyError:
            raise SplitUnknown(
                "SplitUnknown",
                f"{self.uri} has no split {name!r}",
                next_step=f"one of: {', '.join(self._splits)}",
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def decode(self, tokens: ArrayLike) -> str:
        """The text of one token or of many, with the tokenizer that the dataset was made with.

        Where a window cuts a character in two, its bytes become U+FFFD. Raises `ChangedError` where that tokenizer is
        another one now, `SpecError` where it cannot be loaded, and `ValueError` for what is no token of it.
        """
        return load_recorded(self.index).decode(self._require_tokens(tokens))

    def _require_tokens(self, tokens: ArrayLike) -> list[int]:
        """`tokens` as a list; `ValueError` unless it is one token or a row of them."""
        found = np.asarray(tokens)
        if found.ndim > 1:
            shape = " x ".join(f"{size:,}" for size in found.shape)
            raise ValueError(f"decode: expected one token or a row of tokens, found an array of {shape}")
        if not found.size:
            return []
        if found.dtype.kind not in "iu":
            raise ValueError(f"decode: expected tokens, which are whole numbers, found {tokens!r:.80}")
        for token in (int(found.min()), int(found.max())):
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"decode: token {token:,}: expected 0 to {self.vocab_size - 1:,}")
        return found.reshape(-1).tolist()

    def locate(self, split: str, token: int) -> DocumentPlace:
        """The document that token number `token` of a split belongs to. Reads one or two small files."""
        view, token = self[split], require_whole("token", token)
        if not 0 <= token < len(view):
            raise IndexError(f"token {token:,}: expected 0 <= token < {len(view):,}, the length of split {split!r}")
        return self.locate_in(*part_of(view, token))

    def locate_in(self, view: Split, token: int) -> DocumentPlace:
        """`locate` in a split whose groups are not in paths, or in the part of a group."""
        stream = view.stream
        number = stream.shard_number(view.start + token)
        shard = stream.shards[number]
        if shard.row_length:
            return self._locate_in_row(view, number, view.start + token - shard.start)
        sidecar = shard.read_sidecar()
        ends = shard.start + np.cumsum(sidecar.lengths, dtype=np.int64)
        entry = int(np.searchsorted(ends, view.start + token, side="right"))
        start = int(ends[entry]) - int(sidecar.lengths[entry]) - (sidecar.skipped if entry == 0 else 0)
        end = int(ends[entry])
        if entry == len(ends) - 1 and sidecar.continues:
            end = self._end_of_straddling(stream, number + 1)
        if isinstance(sidecar, ScatteredDocuments):
            file, after = int(sidecar.files[entry]), 0
            position: int | None = int(sidecar.positions[entry])
            known_position = int(sidecar.positions[entry])
        else:
            file = self._file_of(view, start)
            is_recorded = file == sidecar.first_file
            # A file that begins inside of this shard: its documents are counted from its first token on.
            begin = self._file_starts[stream.number][file]
            after = entry - (0 if is_recorded else int(np.searchsorted(ends, begin, side="right")))
            position = sidecar.first_position if is_recorded and entry == 0 else None
            known_position = sidecar.first_position if is_recorded else 0
        return DocumentPlace(
            split=view.name,
            start=start - view.start,
            tokens=end - start,
            shard=shard.index,
            path=shard.path,
            entry=entry,
            uri=self._files[file]["uri"],
            position=position,
            known_position=known_position,
            documents_after=after,
            group=self._files[file].get("group", ""),
        )

    def _locate_in_row(self, view: Split, number: int, token: int) -> DocumentPlace:
        """The document of a token of the stream's shard `number`, by the parts of its rows."""
        shard = view.stream.shards[number]
        parts = shard.read_parts()
        entries = shard.entries_of(parts)
        entry = int(np.searchsorted(entries.ends, token, side="right"))
        if entry == len(parts) or entries.starts[entry] > token:
            raise TokenIsPadding(
                "TokenIsPadding",
                f"token {shard.start + token - view.start:,} of split {view.name!r} of {self.uri} is padding, of no "
                "document",
                next_step="ask for a token before it: padding stands at the end of its row",
            )
        part = parts[entry]
        file = self._files[int(part["file"])]
        start, offset = shard.start + int(entries.starts[entry]), int(part["offset"])
        if view.stream.are_pieces_apart:
            end = shard.start + int(entries.ends[entry])
        else:
            start, offset = start - offset, 0
            end = view.stream.end_of_document(number, entry, entries)
        position = int(part["position"])
        return DocumentPlace(
            split=view.name,
            start=start - view.start,
            tokens=end - start,
            shard=shard.index,
            path=shard.path,
            entry=entry,
            uri=file["uri"],
            position=position,
            known_position=position,
            documents_after=0,
            group=file.get("group", ""),
            offset=offset,
        )

    def source_file(self, uri: str) -> dict[str, Any]:
        """The row of a source file: uri, size, version, outcome, counts; raises `KeyError` unless it is one."""
        for row in self._files:
            if row["uri"] == uri:
                return row
        raise KeyError(f"source file {uri!r}: expected one of the {len(self._files):,} source files of {self.uri}")

    def source_uri(self, file: int) -> str:
        """The source file with this number: as parts have it, and its row in files.jsonl.zst; raises `IndexError`."""
        file, count = require_whole("file", file), len(self._files)
        if not 0 <= file < count:
            raise IndexError(f"file {file:,}: expected 0 <= file < {count:,}, the source files of {self.uri}")
        uri: str = self._files[file]["uri"]
        return uri

    @property
    def is_reordered(self) -> bool:
        """Whether documents that follow each other need not do so in the source."""
        output = self.index["data"]["output"]
        return "shuffle" in output or has_packed_rows(output)

    def _read_splits(self) -> dict[str, Split]:
        store, index = self._store, self.index

        def reopen(name: str, group: str) -> Reopening[Split]:
            return _reopen_split, (store, index, name, group)

        return make_splits(store, index, read_shards_table(store, index), self.dtype, self._delimiters, reopen)

    @property
    def _n_streams(self) -> int:
        """Of each file."""
        splits = self.index["data"]["output"]["splits"]
        return len(splits) if splits[0]["share"] is not None else 1

    @cached_property
    def _files(self) -> list[dict[str, Any]]:
        return read_files_table(self._store, self.index, self._n_streams)

    @cached_property
    def _file_starts(self) -> list[NDArray[np.int64]]:
        """For each stream, the number of every file's first token, i64[n_files]; where groups are in paths, in the
        stream of the file's group."""
        counts = np.array([row["tokens"] or [0] * self._n_streams for row in self._files], dtype=np.int64)
        starts = np.cumsum(counts, axis=0) - counts
        for group in planned_groups(self.index["data"]):
            first, end = self._files_of_groups[group]
            starts[first:end] -= starts[first].copy()
        return list(starts.T)

    @cached_property
    def _files_of_groups(self) -> dict[str, tuple[int, int]]:
        """By group in paths, or "": the numbers [first, end) of the files whose tokens are in its streams."""
        found: dict[str, tuple[int, int]] = {}
        has_groups = bool(planned_groups(self.index["data"]))
        for number, row in enumerate(self._files):
            group = row["group"] if has_groups else ""
            found[group] = (found.get(group, (number, 0))[0], number + 1)
        return found

    def _file_of(self, view: Split, token: int) -> int:
        """The file that a document which begins at `token` comes from: files of no tokens hold none."""
        first, end = self._files_of_groups[view.group]
        starts = self._file_starts[view.stream.number][first:end]
        return first + int(np.searchsorted(starts, token, side="right")) - 1

    def _end_of_straddling(self, stream: Stream, number: int) -> int:
        """Where a document ends that goes on at the start of the `number`-th shard."""
        while True:
            shard = stream.shards[number]
            sidecar = shard.read_sidecar()
            if len(sidecar.lengths) > 1 or not sidecar.continues:
                return shard.start + int(sidecar.lengths[0])
            number += 1


def part_of(split: Split, token: int) -> tuple[Split, int]:
    """The part of a split that holds a token, and the token's number in it; the split itself where it has no parts."""
    for part in split.groups.values():
        if token < len(part):
            return part, token
        token -= len(part)
    return split, token


def _reopen_split(store: Store, index: Index, name: str, group: str) -> Split:
    split = Dataset(store, index)[name]
    return split.groups[group] if group else split
