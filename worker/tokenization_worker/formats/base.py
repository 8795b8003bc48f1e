"""The protocol of a file format: its writer, its files and its checks.

A new format is one module that answers, one line in `registry`, a name in `api.data.OutputFormat`, and a decoder in
`verification.formats`.

A shard is one file or several, written from one read of its tokens: `suffixes` names them, the **main file** first. A
format knows only bytes. Names, checksums, the order in which files appear and who may replace them are decided in
`output`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.sequences.parts import PartArray
from tokenization_worker.storage.base import Store

TokenArray = NDArray[np.unsignedinteger]
LengthArray = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ShardShape:
    """What is known of a shard before its first token: how many there are, and their type (`<u2` or `<u4`).

    `row_length`: where the tokens are rows, padding included; 0 where they are one run. `number`: of the shard within
    its split and group.
    """

    tokens: int
    dtype: np.dtype[np.unsignedinteger]
    row_length: int = 0
    number: int = 0

    @property
    def rows(self) -> int:
        """0 where they are one run."""
        return self.tokens // self.row_length if self.row_length else 0


class ByteSink(Protocol):
    """Takes the bytes of one file, in order."""

    def write(self, data: bytes | memoryview, /) -> None: ...


class ShardWriter(Protocol):
    """Turns a shard's tokens into the bytes of its files."""

    def write(self, tokens: TokenArray, parts: PartArray, /) -> None:
        """The next tokens, u16 or u32[n], little-endian and contiguous; about 1 MiB at most.

        In a shard of rows: whole rows, with their parts; at most one row where that is longer. Else no parts.
        """
        ...

    def finish(self, entries: LengthArray, /) -> None:
        """No token follows. `entries` u32[n]: the tokens of each row, or of each document in this shard."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a shard in a store, with the size in bytes that it must have."""

    store: Store
    path: str
    size: int


class ShardUnreadable(Exception):
    """A file is not what its dataset says. The words go on behind its URI: "is missing"."""

    def __init__(self, file: StoredFile, what: str) -> None:
        super().__init__(file.path, what)
        self.file = file
        self.what = what


class ShardReader(Protocol):
    """Reads the tokens of a shard by number; every method raises `ShardUnreadable`."""

    def check(self) -> None:
        """Compare sizes and headers with those that the shard must have; reads no token."""
        ...

    def open(self) -> TokenArray:
        """All tokens, u16 or u32[tokens], after `check`: a read-only memory map where the store is a local disk."""
        ...

    def read(self, start: int, end: int, /) -> TokenArray:
        """Tokens [start, end), read-only, without `check`."""
        ...


class FileKind(Protocol):
    """A kind of files that a shard has. Its name is its key in `registry`."""

    suffixes: tuple[str, ...]
    """Of a shard's files; the first is the main file's."""

    def begin(self, shape: ShardShape, sinks: Sequence[ByteSink], /) -> ShardWriter:
        """A writer of one shard; `sinks` are its files in the order of `suffixes`."""
        ...

    def why_foreign(self, number: int, file: StoredFile, shape: ShardShape, /) -> str | None:
        """Why a file is not file `number` of a shard of this shape, in words; None where it may be one.

        Asked about files that no receipt names: a run that was killed between a file and its receipt leaves some. Of
        a file of parts, and of a folder's index, which has the number behind the last one, the shape is that of a full
        shard. Reads at most the file's beginning; raises `NotFound`.
        """
        ...


class IndexedShard(NamedTuple):
    """A shard as the index of its folder lists it: the name of its file in the folder, its size in bytes, and what it
    holds, padding included."""

    name: str
    bytes: int
    tokens: int
    rows: int


class FolderIndex(Protocol):
    """A file beside the shards of a folder, which lists them for the format's readers. Its format is one file a shard.

    It follows from the shards: it is written when all of them are there, and again where it was damaged.
    """

    name: str

    def to_bytes(self, shards: Sequence[IndexedShard], shape: ShardShape, /) -> bytes:
        """The index of these shards, of which each has `shape` but for the number of tokens."""
        ...


@dataclass(frozen=True, slots=True)
class FormatTraits:
    """What the code that uses a format must know of it.

    `has_random_access`: whether some tokens can be read without all of them. `needs_rows`: whether it stores nothing
    but rows. `library`: what decides its bytes beside our own code, with the version here; another version may write
    others. `folder_index`: None where readers need none.
    """

    has_random_access: bool = True
    needs_rows: bool = False
    library: Callable[[], str] | None = None
    folder_index: FolderIndex | None = None


class ShardFormat(FileKind, Protocol):
    """A format of shards: files that hold all tokens. A manifest gives it its name."""

    traits: FormatTraits

    def total_bytes(self, shape: ShardShape, shards: int, entries: int, /) -> int:
        """Of all files of `shards` shards, which together have this shape and `entries` documents, or rows.

        For plans: a document that stands in two shards is two entries.
        """
        ...

    def reader(self, shape: ShardShape, files: Sequence[StoredFile], /) -> ShardReader:
        """A reader of one shard; `files` are in the order of `suffixes`."""
        ...
