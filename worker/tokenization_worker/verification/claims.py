"""What tables and manifest claim of a shard, a source file, a split and the rules of a source. Values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.output import layout
from tokenization_worker.readers.document_batch import FileOutcome


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file of a shard, as the shards table has it."""

    format: str
    path: str
    bytes: int
    crc32c: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardClaim:
    """A row of the shards table, and where the shard begins in its stream. `files`: the main file first; `number`: of
    the shard in its stream; `text_start`: tokens of documents in the shards before.

    `tokens`: of documents. `stored`: those in its files, with padding. `rows`: 0 where the tokens are one run. A shard
    of rows has the file of their parts as its last file, and no sidecar: `documents_sha256` is "".
    """

    stream: int
    start: int
    split: str
    index: int
    tokens: int
    stored: int
    rows: int
    documents: int
    files: tuple[ClaimedFile, ...]
    documents_sha256: str
    group: str = ""
    number: int = 0
    text_start: int = 0

    @property
    def path(self) -> str:
        """Of the main file."""
        return self.files[0].path

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def end(self) -> int:
        return self.start + self.stored

    @property
    def token_files(self) -> tuple[ClaimedFile, ...]:
        """The files that hold tokens."""
        return self.files[:-1] if self.rows else self.files

    @property
    def documents_path(self) -> str:
        """Of the file that says which documents the shard holds."""
        return self.files[-1].path if self.rows else self.sidecar_path

    @property
    def sidecar_path(self) -> str:
        return layout.documents_path(self.split, self.index, self.group)


@dataclass(frozen=True, slots=True)
class FileClaim:
    """A row of the files table; `documents`, `tokens` and `starts` (its first token) have an entry a stream.
    Places in a stream count padding, too.

    A dropped file has zeros: it claims the empty place between its neighbours. `read_bytes`, `quarantined_bytes`: of
    documents; None where the table does not say. `group`: "" where there are none; `left_out`: usable documents that
    its share leaves out; `first_stream`: which stream is that of the first entries. `truncated`: tokens in each stream
    that are not written; () where the job truncates no document.
    """

    number: int
    uri: str
    size: int
    version: str
    outcome: str
    documents: tuple[int, ...]
    tokens: tuple[int, ...]
    starts: tuple[int, ...]
    quarantined: int
    pin: str = ""
    read_bytes: int | None = None
    quarantined_bytes: int | None = None
    group: str = ""
    left_out: int = 0
    first_stream: int = 0
    truncated: tuple[int, ...] = ()

    @property
    def is_read(self) -> bool:
        return self.outcome == FileOutcome.READ


@dataclass(frozen=True, slots=True)
class SourceRules:
    """How the bytes of a source file become documents."""

    format: SourceFormat
    text_field: str
    separator: bytes | None
    max_document_bytes: int


class Shuffled(Enum):
    """What stands in another order than in the source."""

    NOTHING = auto()
    DOCUMENTS = auto()
    ROWS = auto()


@dataclass(frozen=True, slots=True)
class PackingClaim:
    """Best fit. A full shard has the documents that end in `window_tokens` tokens of the stream, None: rows of any
    documents, since they are shuffled; a row has at most `max_documents` pieces, None: any number. `truncates`: a
    document that is longer than a row is cut off behind it."""

    window_tokens: int | None
    max_documents: int | None
    truncates: bool = False


@dataclass(frozen=True, slots=True)
class SequenceClaim:
    """Rows of `length` tokens. `pad_id` fills the last one of each file (`by_file`), or of each stream; `packing`: of
    rows that are packed by best fit, each of which may have padding, None of others.
    """

    length: int
    by_file: bool
    pad_id: int
    shuffled: Shuffled = Shuffled.NOTHING
    packing: PackingClaim | None = None

    @property
    def has_uneven_shards(self) -> bool:
        """Whether documents decide how many rows a shard has."""
        return self.packing is not None and self.packing.window_tokens is not None

    @property
    def are_rows_apart(self) -> bool:
        """Whether a row says nothing of the one beside it."""
        return self.shuffled is Shuffled.ROWS or self.packing is not None


@dataclass(frozen=True, slots=True)
class ShuffleClaim:
    """Documents, or rows, in the order that `seed` gives them."""

    seed: int
    by_row: bool


@dataclass(frozen=True, slots=True)
class SplitClaim:
    """A split of the manifest: its number of leading shards, or its share, or (the last one) neither."""

    name: str
    shards: int | None
    share: Fraction | None


def shard_ends(shards: tuple[ShardClaim, ...]) -> NDArray[np.int64]:
    """Where each shard of a stream ends, i64[n_shards]."""
    return np.array([shard.end for shard in shards], dtype=np.int64)
