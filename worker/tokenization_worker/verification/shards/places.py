"""The order of a shuffled shard: where the pieces of documents in it come from, and whether its units ascend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.order import keys_of
from tokenization_worker.verification.report import Fault, Finding

Place = tuple[int, int, int, int]
"""Key, file, position and offset: what units are sorted by."""


class Pieces(NamedTuple):
    """Pieces of documents in a shard, in order: tokens [start, start + length) of the shard are the tokens of the
    document from `offset` on. All i64[n] but `files` u32[n].
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    files: NDArray[np.uint32]
    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def take(self, chosen: NDArray[Any]) -> Pieces:
        return Pieces(*(values[chosen] for values in self))


class Units(NamedTuple):
    """The units of a shuffled shard in order: of each its first piece. `is_continued`: the first one begins in the
    shard before.
    """

    firsts: Pieces
    is_continued: bool


def documents_of(pieces: Pieces) -> Units:
    """The documents of a shard, one behind the other, whatever rows cut them."""
    is_first = pieces.offsets == 0
    is_continued = bool(len(is_first)) and not is_first[0]
    is_first[:1] = True
    firsts = pieces.take(np.flatnonzero(is_first))
    return Units(firsts._replace(offsets=np.zeros(len(firsts.offsets), np.int64)), is_continued)


def rows_of(pieces: Pieces, length: int) -> Units:
    """The rows of a shard."""
    return Units(pieces.take(np.flatnonzero(pieces.starts % length == 0)), False)


def find_disorder(claim: ShardClaim, units: Units, seed: int) -> list[Finding]:
    """The first unit of the shard that does not come behind the one before it, if there is one."""
    firsts = units.firsts
    keys = keys_of(seed, firsts.files, firsts.positions, firsts.offsets)
    is_less = firsts.offsets[1:] <= firsts.offsets[:-1]
    for values in (firsts.positions, firsts.files, keys):
        is_less = (values[1:] < values[:-1]) | ((values[1:] == values[:-1]) & is_less)
    wrong = np.flatnonzero(is_less)
    if not len(wrong):
        return []
    at = int(wrong[0])
    was, now = _places(firsts.take(np.array([at, at + 1])), seed)
    return [disorder(claim, was, now, int(firsts.starts[at + 1]))]


def disorder(claim: ShardClaim, was: Place, now: Place, token: int) -> Finding:
    """That the unit at `now` stands behind the one at `was`."""
    what = f"documents or rows in the order of their keys, each once: after {_words(was)} a larger one"
    return Finding(Fault.ORDER_WRONG, what, _words(now), claim.path, token)


def places_at_ends(units: Units, seed: int) -> tuple[Place, Place]:
    """Of the first and of the last unit."""
    first, last = _places(units.firsts.take(np.array([0, -1])), seed)
    return first, last


def _places(pieces: Pieces, seed: int) -> list[Place]:
    keys = keys_of(seed, pieces.files, pieces.positions, pieces.offsets)
    columns = (values.tolist() for values in (keys, pieces.files, pieces.positions, pieces.offsets))
    return list(zip(*columns, strict=True))


def _words(place: Place) -> str:
    key, file, position, offset = place
    inside = f", token {offset:,}" if offset else ""
    return f"key {key:#018x} (file {file}, position {position:,}{inside})"
