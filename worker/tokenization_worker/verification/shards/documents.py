"""The file beside a shard that says which documents it holds: a sidecar, or the parts of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim

Numbers = NDArray[np.int64]


class NoDocuments(Exception):
    """The file is missing or its bytes are none; the message says what is wrong."""


class PlacedDocuments(NamedTuple):
    """Documents of one file, each of one token or more, and where they stand in their stream: [begins, ends)."""

    file: int
    begins: Numbers
    ends: Numbers
    positions: Numbers


class Difference(NamedTuple):
    """What the file should say and says of one of the documents; `token` is the shard's, `document` the number."""

    expected: str
    found: str
    token: int
    document: int


Source = tuple[int, int]
"""The place of a document in the source: file and position."""


class Begins(NamedTuple):
    """Documents that begin in a shard, in order: their first tokens, i64[n], and their places where these are known.

    `files`, `positions` i64[n].
    """

    tokens: Numbers
    files: Numbers | None = None
    positions: Numbers | None = None

    def sources(self, chosen: NDArray[np.bool_]) -> list[Source] | list[None]:
        """The places of the chosen ones."""
        if self.files is None or self.positions is None:
            return [None] * int(chosen.sum())
        return list(zip(self.files[chosen].tolist(), self.positions[chosen].tolist(), strict=True))


class ShardDocuments(Protocol):
    """What such a file says."""

    def begins(self) -> Iterator[Begins]:
        """The documents that begin in the shard, some thousands at a time."""
        ...

    def first(self) -> tuple[int, int, int] | None:
        """File and position of the document that holds the shard's first token, and how many of its tokens stand
        before the shard; None where `begins` knows the places of all documents."""
        ...

    def difference(self, shard: ShardClaim, documents: PlacedDocuments, /) -> Difference | None:
        """Where the file disagrees with these documents, some of whose tokens are in the shard."""
        ...
