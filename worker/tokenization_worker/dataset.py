"""Reading a finished dataset: tokens by number, shards as arrays, and where a token comes from.

    dataset = open_dataset("out")
    train = dataset["train"]
    len(train)                       # tokens
    train.tokens(0, 2049)            # numpy array, across shards
    train.shards[0].open()           # memory-mapped where local
    dataset.locate("train", 1_000)   # the document that this token belongs to

Everything comes from the index, the shards table and the documents sidecars; the source is not needed. A
dataset can be pickled and sent to loader processes: it holds no file and no mapping open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenization_worker import layout
from tokenization_worker.errors import DataError
from tokenization_worker.index import Index, require_index
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store

_DTYPES: dict[str, np.dtype[np.unsignedinteger]] = {"UInt16": np.dtype("<u2"), "UInt32": np.dtype("<u4")}
_HEADER_BYTES = 128

TokenArray = NDArray[np.unsignedinteger]


def open_dataset(uri: str | os.PathLike[str]) -> Dataset:
    """The dataset at `uri`: a local folder or gs://bucket/prefix, the output.uri of a finished job.

    Raises `SpecError("NotADataset")`, saying what is there, if no run has finished there.
    """
    store = open_store(os.fspath(uri).rstrip("/") or "/")
    return Dataset(store, require_index(store))


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


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard file. `tokens` and `documents` (that begin in it) are counts; `start`: its first token's number
    in the stream that its split is cut from; `documents_sha256`: of its documents sidecar."""

    _store: Store
    path: str
    split: str
    index: int
    tokens: int
    documents: int
    start: int
    documents_sha256: str

    @property
    def end(self) -> int:
        return self.start + self.tokens

    @property
    def uri(self) -> str:
        return f"{self._store.uri}/{self.path}"

    def open(self) -> TokenArray:
        """All tokens, u16 or u32[tokens]: a read-only memory map of a local file, else read into memory."""
        path = self._store.local_path(self.path)
        try:
            tokens: TokenArray = np.load(path or BytesIO(self._store.read(self.path)), mmap_mode="r" if path else None)
        except (FileNotFoundError, NotFound) as error:
            raise _damaged(self, "is missing") from error
        except ValueError as error:
            raise _damaged(self, str(error)) from error
        if tokens.shape != (self.tokens,):
            raise _damaged(self, f"has shape {tokens.shape}, expected {self.tokens:,} tokens")
        return tokens

    def read(self, start: int, end: int, dtype: np.dtype[np.unsignedinteger]) -> TokenArray:
        """Tokens [start, end) of the shard, read-only."""
        first = _HEADER_BYTES + start * dtype.itemsize
        try:
            data = self._store.read_range(self.path, first, first + (end - start) * dtype.itemsize)
        except NotFound as error:
            raise _damaged(self, "is missing") from error
        if len(data) != (end - start) * dtype.itemsize:
            raise _damaged(self, f"ends at byte {first + len(data):,}")
        return np.frombuffer(data, dtype=dtype)


def _damaged(shard: Shard, what: str) -> DataError:
    return DataError("ShardDamaged", f"{shard.uri} {what}", next_step="see what else is wrong with: tokjob verify")


class Stream:
    """A run of tokens that documents were written into, cut into shards: one split, or several leading ones."""

    def __init__(self, number: int, shards: tuple[Shard, ...], dtype: np.dtype[np.unsignedinteger]) -> None:
        self.number = number
        self.shards = shards
        self.dtype = dtype
        self._ends = np.array([shard.end for shard in shards], dtype=np.int64)

    def __len__(self) -> int:
        return self.shards[-1].end if self.shards else 0

    def shard_number(self, token: int) -> int:
        """Which shard holds a token."""
        return int(np.searchsorted(self._ends, token, side="right"))

    def tokens(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end), a new array."""
        tokens = np.empty(end - start, dtype=self.dtype)
        at = start
        for shard in self.shards[self.shard_number(start) :]:
            if at >= end:
                break
            stop = min(end, shard.end)
            tokens[at - start : stop - start] = shard.read(at - shard.start, stop - shard.start, self.dtype)
            at = stop
        return tokens


class Split:
    """One split's tokens, numbered from 0."""

    def __init__(self, name: str, documents: int, stream: Stream, shards: tuple[Shard, ...]) -> None:
        self.name = name
        self.shards = shards
        self.documents = documents
        self.stream = stream
        self.start = shards[0].start if shards else 0

    def __len__(self) -> int:
        """The number of tokens."""
        return self.shards[-1].end - self.start if self.shards else 0

    def __repr__(self) -> str:
        return f"Split({self.name!r}, tokens={len(self)}, documents={self.documents}, shards={len(self.shards)})"

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        return self.stream.dtype

    def tokens(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end) as a new array, across shards; raises `IndexError` outside of the split."""
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"tokens [{start}, {end}) of split {self.name!r}, which has {len(self):,}")
        return self.stream.tokens(self.start + start, self.start + end)


class Dataset(Mapping[str, Split]):
    """A finished dataset: splits by name, in the manifest's order. `index` is index.json as it is."""

    def __init__(self, store: Store, index: Index) -> None:
        self._store = store
        self.uri = store.uri
        self.index = index
        self.dtype = _DTYPES[index["dtype"]]
        self.tokenizer: str = index["tokenizer"]["name"]
        self.vocab_size: int = index["tokenizer"]["vocabularySize"]
        self.delimiter_id: int | None = index["tokenizer"]["delimiterId"]
        self._splits = self._read_splits()

    def __repr__(self) -> str:
        return f"Dataset({self.uri!r}, {list(self._splits.values())})"

    def __reduce__(self) -> tuple[type[Dataset], tuple[Store, Index]]:
        return Dataset, (self._store, self.index)

    def __getitem__(self, name: str) -> Split:
        """The split `name`; raises `KeyError`."""
        return self._splits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def locate(self, split: str, token: int) -> DocumentPlace:
        """The document that token number `token` of a split belongs to. Reads one or two small files."""
        view = self[split]
        if not 0 <= token < len(view):
            raise IndexError(f"token {token} of split {split!r}, which has {len(view):,}")
        stream = view.stream
        number = stream.shard_number(view.start + token)
        shard = stream.shards[number]
        sidecar = self._sidecar(shard)
        ends = shard.start + np.cumsum(sidecar.lengths, dtype=np.int64)
        entry = int(np.searchsorted(ends, view.start + token, side="right"))
        start = int(ends[entry]) - int(sidecar.lengths[entry]) - (sidecar.skipped if entry == 0 else 0)
        end = int(ends[entry])
        if entry == len(ends) - 1 and sidecar.continues:
            end = self._end_of_straddling(stream, number + 1)
        file = self._file_of(stream.number, start)
        is_recorded = file == sidecar.first_file
        # A file that begins inside of this shard: its documents are counted from its first token on.
        first = 0 if is_recorded else int(np.searchsorted(ends, self._file_starts[stream.number][file], side="right"))
        return DocumentPlace(
            split=split,
            start=start - view.start,
            tokens=end - start,
            shard=shard.index,
            path=shard.path,
            entry=entry,
            uri=self._files[file]["uri"],
            position=sidecar.first_position if is_recorded and entry == 0 else None,
            known_position=sidecar.first_position if is_recorded else 0,
            documents_after=entry - first,
        )

    def source_file(self, uri: str) -> dict[str, Any]:
        """The row of a source file: uri, size, version, outcome, counts; raises `KeyError`."""
        for row in self._files:
            if row["uri"] == uri:
                return row
        raise KeyError(uri)

    def _read_splits(self) -> dict[str, Split]:
        rows = _read_table(self._store, layout.SHARDS_TABLE)
        entries = self.index["splits"]
        by_hash = self.index["data"]["output"]["splits"][0]["share"] is not None
        shards: dict[str, tuple[Shard, ...]] = {}
        start = 0
        for entry in entries:
            if by_hash:
                start = 0
            mine = []
            for row in sorted((row for row in rows if row["split"] == entry["name"]), key=lambda row: row["index"]):
                sizes = (row["tokens"], row["documents"], start)
                place = (row["path"], row["split"], row["index"])
                mine.append(Shard(self._store, *place, *sizes, row["documentsSha256"]))
                start += row["tokens"]
            shards[entry["name"]] = tuple(mine)
        if by_hash:
            streams = [Stream(number, mine, self.dtype) for number, mine in enumerate(shards.values())]
        else:
            whole = Stream(0, tuple(shard for mine in shards.values() for shard in mine), self.dtype)
            streams = [whole] * len(shards)
        return {
            entry["name"]: Split(entry["name"], entry["documents"], stream, shards[entry["name"]])
            for entry, stream in zip(entries, streams, strict=True)
        }

    @cached_property
    def _files(self) -> list[dict[str, Any]]:
        return _read_table(self._store, layout.FILES_TABLE)

    @cached_property
    def _file_starts(self) -> list[NDArray[np.int64]]:
        """For each stream, the number of every file's first token, i64[n_files]."""
        n_streams = 1 + max(split.stream.number for split in self._splits.values())
        counts = np.array([row["tokens"] or [0] * n_streams for row in self._files], dtype=np.int64)
        return list((np.cumsum(counts, axis=0) - counts).T)

    def _file_of(self, stream: int, token: int) -> int:
        """The file that a document which begins at `token` comes from: files of no tokens hold none."""
        return int(np.searchsorted(self._file_starts[stream], token, side="right")) - 1

    def _sidecar(self, shard: Shard) -> Any:
        from tokenization_worker.documents import ShardDocuments

        path = layout.documents_path(shard.split, shard.index)
        try:
            data = self._store.read(path)
        except NotFound as error:
            raise _damaged(shard, f"has no documents sidecar at {path}") from error
        return ShardDocuments.from_bytes(data, shard.documents_sha256, f"{self.uri}/{path}")

    def _end_of_straddling(self, stream: Stream, number: int) -> int:
        """Where a document ends that goes on at the start of the `number`-th shard."""
        while True:
            shard = stream.shards[number]
            sidecar = self._sidecar(shard)
            if len(sidecar.lengths) > 1 or not sidecar.continues:
                return shard.start + int(sidecar.lengths[0])
            number += 1


def _read_table(store: Store, path: str) -> list[dict[str, Any]]:
    from tokenization_worker.proof import read_table

    return read_table(store, path)
