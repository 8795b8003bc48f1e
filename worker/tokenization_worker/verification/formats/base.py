"""The protocol of a shard format for `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

DType = np.dtype[np.unsignedinteger]
TokenArray = NDArray[np.unsignedinteger]

ReadRange = Callable[[int, int, int], bytes]
"""(number of the file, start, end) -> its bytes [start, end), fewer where it ends before; raises `NotFound`."""


class Problem(NamedTuple):
    """What file `number` of a shard says otherwise than it must."""

    number: int
    expected: str
    found: str


class Expected(NamedTuple):
    """What a shard must hold beside its tokens, of which there are `tokens`, padding included.

    `lengths` u32[n]: the tokens of each row, or the documents' tokens in this shard by the sidecar; None where that
    cannot be read. `number`: of the shard within its split and group. `firsts`: the part that begins each row, of
    `shards.parts.PART`; None where there are no rows, or no parts that tile them.
    """

    tokens: int
    lengths: NDArray[np.uint32] | None
    number: int = 0
    firsts: NDArray[np.void] | None = None


class ListedShard(NamedTuple):
    """A shard for the index of its folder: the name of its file there, and its size in bytes and rows."""

    name: str
    bytes: int
    rows: int


class FolderIndex(Protocol):
    """The file in each folder that lists its shards."""

    name: str

    def content(self, shards: Sequence[ListedShard], dtype: DType, row_length: int, /) -> bytes:
        """The bytes that it must have."""
        ...


class ShardScan(Protocol):
    """One pass over the files of a shard, one after the other from start to end, the main file first."""

    @property
    def tokens_seen(self) -> int:
        """Tokens in all bytes so far."""
        ...

    def take(self, number: int, data: bytes, /) -> TokenArray:
        """The tokens that are complete with `data`, the next bytes of file `number`."""
        ...

    @property
    def tokens(self) -> int | None:
        """How many tokens the files themselves say that the shard has; None where they are none of this format."""
        ...

    def problems(self, expected: Expected, /) -> Iterator[Problem]:
        """What is wrong in the files, beside the tokens."""
        ...


class ShardDecoder(Protocol):
    """Reads one format. `suffixes`: of a shard's files, the main file's first. `has_random_access`: whether `read`
    costs what it returns, and not the shard up to there."""

    suffixes: tuple[str, ...]
    has_random_access: bool
    folder_index: FolderIndex | None

    def size(self, number: int, tokens: int, dtype: DType, /) -> int | None:
        """The bytes of file `number` of a shard of so many tokens; None where they do not follow from that."""
        ...

    def scan(self, dtype: DType, row_length: int = 0, /) -> ShardScan:
        """A pass over a shard's files. `row_length`: 0 where the tokens are one run; else padding counts as tokens."""
        ...

    def read(self, files: ReadRange, start: int, end: int, dtype: DType, /) -> TokenArray:
        """Tokens [start, end) of a shard, fewer where it is cut; raises `NotFound`."""
        ...


def no_tokens(dtype: DType) -> TokenArray:
    """What a file that holds no tokens gives."""
    return np.empty(0, dtype=dtype)


def whole_tokens(parts: Sequence[bytes], dtype: DType) -> TokenArray:
    """The tokens in `parts` together; a byte that is left over at the end is none."""
    data = b"".join(parts)
    return np.frombuffer(data, dtype=dtype, count=len(data) // dtype.itemsize)
