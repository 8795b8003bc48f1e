"""Sidecars: which documents a shard holds. One file per shard, `_tokenization/documents/<split>/<index>`.

Bytes: magic, u32 header length, header (JSON), padding to a multiple of 8, then `lengths` u32[n]: the
tokens of each document that lie in this shard, delimiter included, in order; they add up to the shard's
tokens. The header:

    entries        n
    documents      how many of them begin in this shard
    firstFile      file (row of files.jsonl.zst) and
    firstPosition  place (byte offset of the record; Parquet: row) of the first entry's document
    skipped        tokens of that document that lie in earlier shards
    continues      whether the last entry's document goes on in the next shard

Token to document: prefix sums of the lengths. Document to text and id: read the source from the first
document on. Documents of no tokens (empty text without delimiter) are in no shard.

In a shuffled shard documents of all files stand in any order, so its sidecar names the place of each. The magic is
TOKDOCS2; the header has entries, documents, skipped and continues; behind it stand `positions` i64[n], `files` u32[n]
and `lengths` u32[n].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.errors import DataError
from tokenization_worker.formats.segment import Block

MAGIC = b"TOKDOCS1"
SCATTERED_MAGIC = b"TOKDOCS2"


@dataclass(frozen=True, slots=True)
class ShardDocuments:
    """A sidecar's content; `lengths` u32[n]."""

    lengths: NDArray[np.uint32]
    documents: int
    first_file: int
    first_position: int
    skipped: int
    continues: bool

    def to_bytes(self) -> bytes:
        fields = {
            "entries": len(self.lengths),
            "documents": self.documents,
            "firstFile": self.first_file,
            "firstPosition": self.first_position,
            "skipped": self.skipped,
            "continues": self.continues,
        }
        return _head(MAGIC, fields) + self.lengths.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, digest: str, where: str) -> ShardDocuments:
        """The sidecar at `where`; raises `DataError` if these bytes are none, or have another SHA-256 than `digest`."""
        header, start = _read_head(data, MAGIC, digest, where)
        try:
            lengths = np.frombuffer(data, dtype="<u4", offset=start)
            sidecar = cls(
                lengths,
                int(header["documents"]),
                int(header["firstFile"]),
                int(header["firstPosition"]),
                int(header["skipped"]),
                bool(header["continues"]),
            )
            entries = int(header["entries"])
        except KeyError as error:
            raise _corrupt(where, f"its header has no field {error}") from error
        except (ValueError, TypeError) as error:
            raise _corrupt(where, str(error)) from error
        if len(lengths) != entries:
            raise _corrupt(where, f"it has {len(lengths)} lengths, and its header says {entries}")
        return sidecar


@dataclass(frozen=True, slots=True)
class ScatteredDocuments:
    """The content of a shuffled shard's sidecar; `lengths`, `files` u32[n], `positions` i64[n]."""

    lengths: NDArray[np.uint32]
    documents: int
    skipped: int
    continues: bool
    files: NDArray[np.uint32]
    positions: NDArray[np.int64]

    def to_bytes(self) -> bytes:
        fields = {
            "entries": len(self.lengths),
            "documents": self.documents,
            "skipped": self.skipped,
            "continues": self.continues,
        }
        arrays = (self.positions.astype("<i8"), self.files.astype("<u4"), self.lengths.astype("<u4"))
        return _head(SCATTERED_MAGIC, fields) + b"".join(array.tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, data: bytes, digest: str, where: str) -> ScatteredDocuments:
        """The sidecar at `where`; raises `DataError` as `ShardDocuments.from_bytes`."""
        header, start = _read_head(data, SCATTERED_MAGIC, digest, where)
        try:
            n = int(header["entries"])
            sidecar = cls(
                np.frombuffer(data, "<u4", n, start + 12 * n),
                int(header["documents"]),
                int(header["skipped"]),
                bool(header["continues"]),
                np.frombuffer(data, "<u4", n, start + 8 * n),
                np.frombuffer(data, "<i8", n, start),
            )
        except KeyError as error:
            raise _corrupt(where, f"its header has no field {error}") from error
        except (ValueError, TypeError) as error:
            raise _corrupt(where, str(error)) from error
        if len(data) != start + 16 * n:
            raise _corrupt(where, f"it has {len(data):,} bytes, and its header says {n:,} entries")
        return sidecar


def parse_sidecar(data: bytes, digest: str, where: str) -> ShardDocuments | ScatteredDocuments:
    """The sidecar at `where`, of either kind; raises `DataError` as `ShardDocuments.from_bytes`."""
    kind = ScatteredDocuments if data.startswith(SCATTERED_MAGIC) else ShardDocuments
    return kind.from_bytes(data, digest, where)


def _head(magic: bytes, fields: Mapping[str, object]) -> bytes:
    """Magic and header, padded to a multiple of 8."""
    header = orjson.dumps(fields)
    head = magic + len(header).to_bytes(4, "little") + header
    return head + b" " * (-len(head) % 8)


def _read_head(data: bytes, magic: bytes, digest: str, where: str) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin; raises `DataError`."""
    if sha256(data).hexdigest() != digest:
        raise _corrupt(where, "its SHA-256 does not match the shards table")
    if data[:8] != magic:
        raise _corrupt(where, "it does not begin with the header of a documents sidecar")
    end = 12 + int.from_bytes(data[8:12], "little")
    try:
        return dict(orjson.loads(data[12:end])), end + -end % 8
    except (ValueError, TypeError) as error:
        raise _corrupt(where, str(error)) from error


def _corrupt(where: str, what: str) -> DataError:
    return DataError(
        "SidecarCorrupt",
        f"{where} is corrupt: {what}",
        next_step="run the job with a new rerunToken, which writes it again; tokjob verify lists all that is wrong",
    )


class DocumentsBuilder:
    """Collects a shard's documents block by block."""

    def __init__(self) -> None:
        self._lengths: list[NDArray[np.int64]] = []
        self._first: tuple[int, int, int] | None = None
        self._continues = False

    def add(self, block: Block, start: int, end: int, file_of_slice: NDArray[np.int64]) -> None:
        """Take the documents of `block` that have tokens in [start, end) of its stream.

        `file_of_slice` i64[n_slices] maps the range's slices to files.
        """
        ends = block.token_start + np.cumsum(block.lengths, dtype=np.int64)
        starts = ends - block.lengths
        inside = np.flatnonzero((starts < end) & (ends > start) & (block.lengths > 0))
        if not len(inside):
            return
        self._lengths.append(np.minimum(ends[inside], end) - np.maximum(starts[inside], start))
        if self._first is None:
            first = int(inside[0])
            file = int(file_of_slice[block.slices[first]])
            self._first = (file, int(block.positions[first]), max(0, start - int(starts[first])))
        self._continues = int(ends[inside[-1]]) > end

    def finish(self) -> ShardDocuments:
        assert self._first is not None, "a shard holds at least one token"
        lengths = np.concatenate(self._lengths).astype(np.uint32)
        file, position, skipped = self._first
        return ShardDocuments(lengths, len(lengths) - (skipped > 0), file, position, skipped, self._continues)
