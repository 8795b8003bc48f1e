"""One shard of a dataset: its tokens, and which documents they are of.

What is read is compared with what the index and the shards table say: a shard's size and header, the SHA-256 of a
sidecar, the SHA-256 or the CRC32C of parts. The tokens themselves are not: `tokjob verify` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.dataset.parts_file import PartsFile
from tokenization_worker.errors import DataError
from tokenization_worker.formats.base import ShardReader, ShardShape, ShardUnreadable, StoredFile, TokenArray
from tokenization_worker.formats.registry import format_of
from tokenization_worker.formats.sidecar import ScatteredDocuments, ShardDocuments, parse_sidecar
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.sequences.parts import PART, PartArray
from tokenization_worker.storage.base import NotFound, Store


class Entries(NamedTuple):
    """The stretches of documents in a shard, in order: tokens [starts, ends) of the shard, of which `offsets` tokens of
    the document stand before. Each i64[n]. Between two of them may be padding. `continues`: whether the last document
    goes on in the next shard; None where only that says so.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    continues: bool | None


class StoredParts(NamedTuple):
    """The file of a shard's parts, as the shards table has it; `size` in bytes."""

    path: str
    size: int
    crc32c: int
    sha256: str


NO_PARTS_FILE = StoredParts("", 0, 0, "")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard in one format: `files` are its files with their sizes in bytes, the main file first.

    `tokens` counts all that is stored, padding too, and `documents` those that begin in it. `start`: its first token's
    number in the stream that its split is cut from. `row_length`: 0 where the tokens are one run; then
    `documents_sha256` is of its documents sidecar, else `parts` is the file of its parts.
    """

    _store: Store
    format: str
    files: tuple[tuple[str, int], ...]
    dtype: np.dtype[np.unsignedinteger]
    split: str
    index: int
    tokens: int
    documents: int
    start: int
    documents_sha256: str
    row_length: int = 0
    parts: StoredParts = NO_PARTS_FILE
    group: str = ""

    @property
    def path(self) -> str:
        """Of the main file."""
        return self.files[0][0]

    @property
    def end(self) -> int:
        return self.start + self.tokens

    @property
    def rows(self) -> int:
        """0 where the tokens are one run."""
        return self.tokens // self.row_length if self.row_length else 0

    @property
    def uri(self) -> str:
        return f"{self._store.uri}/{self.path}"

    @property
    def has_random_access(self) -> bool:
        """Whether some of its tokens can be read without all of them."""
        return format_of(self.format).traits.has_random_access

    @property
    def can_be_mapped(self) -> bool:
        return self._store.local_path("") is not None

    def open(self) -> TokenArray:
        """All tokens, read-only, u16 or u32[tokens]: a memory map of a local file where the format allows it, else read
        into memory."""
        with self.mapping_damage():
            return self._reader.open()

    def check(self) -> None:
        """Raise `DataError` unless the files have the sizes and headers of this shard; reads nothing else of them."""
        with self.mapping_damage():
            self._reader.check()

    def read(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end) of the shard, read-only."""
        with self.mapping_damage():
            return self._reader.read(start, end)

    @property
    def _reader(self) -> ShardReader:
        files = [StoredFile(self._store, path, size) for path, size in self.files]
        return format_of(self.format).reader(ShardShape(self.tokens, self.dtype, self.row_length), files)

    @contextmanager
    def mapping_damage(self) -> Iterator[None]:
        """Turns what readers of its files raise into a `DataError`."""
        try:
            yield
        except ShardUnreadable as error:
            raise self._mismatched(error.file.path, error.what) from error

    def read_entries(self) -> Entries:
        """The documents in it; raises `DataError` where what says so is missing or corrupt."""
        if self.row_length:
            return self.entries_of(self.read_parts())
        sidecar = self.read_sidecar()
        ends = np.cumsum(sidecar.lengths, dtype=np.int64)
        offsets = np.zeros(len(ends), dtype=np.int64)
        offsets[:1] = sidecar.skipped
        return Entries(ends - sidecar.lengths, ends, offsets, sidecar.continues)

    def entries_of(self, parts: PartArray) -> Entries:
        """The entries that its parts are."""
        starts = parts["row"].astype(np.int64) * self.row_length + parts["start"]
        return Entries(starts, starts + parts["length"], parts["offset"].astype(np.int64), None)

    def read_sidecar(self) -> ShardDocuments | ScatteredDocuments:
        """Which documents it holds, where it has no rows; raises `DataError` where that is mismatched."""
        path = layout.documents_path(self.split, self.index, self.group)
        try:
            data = self._store.read(path)
        except NotFound as error:
            raise self._mismatched(self.path, f"has no documents sidecar at {path}") from error
        return parse_sidecar(data, self.documents_sha256, f"{self._store.uri}/{path}")

    def read_parts(self) -> PartArray:
        """The parts of its rows, of `sequences.parts.PART`; raises `DataError` where they are missing or corrupt."""
        path = self.parts.path
        try:
            data = self._store.read(path)
        except NotFound as error:
            raise self._mismatched(path, "is missing") from error
        if sha256(data).hexdigest() != self.parts.sha256:
            raise self._mismatched(path, "is corrupt: its SHA-256 does not match the shards table")
        parts: PartArray = np.load(BytesIO(data))
        assert parts.dtype == PART, "the table was written with this file"
        return parts

    def parts_file(self) -> PartsFile:
        """Reads the parts of some of its rows."""
        return PartsFile(StoredFile(self._store, self.parts.path, self.parts.size), self.rows)

    def _mismatched(self, path: str, what: str) -> DataError:
        """The error of a file that is not what the index says; `what` goes on behind its URI."""
        step = f"list everything that is wrong: {tokjob('verify', self._store.uri)}"
        return DataError("ShardDamaged", f"{self._store.uri}/{path} {what}", next_step=step)
