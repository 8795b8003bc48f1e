"""Units of a shuffle: documents, or rows, with their tokens and parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.sequences.order import Keys, keys_of, sort_units
from tokenization_worker.sequences.parts import PART, PartArray

TokenArray = NDArray[np.unsignedinteger]

_GATHERED = 1 << 18
"""Tokens that are moved at once: their places take 8 bytes each."""


class Units(NamedTuple):
    """`tokens` u16/u32[n_tokens]: those of each unit, padding included, behind those of the unit before. `lengths`
    i64[n]: tokens of each unit. `parts`: one or more of each unit, whose number is their `row`.
    """

    tokens: TokenArray
    lengths: NDArray[np.int64]
    parts: PartArray

    @classmethod
    def join(cls, several: Sequence[Self]) -> Self:
        """All units, one after the other. `several` is not empty."""
        parts = np.concatenate([units.parts for units in several])
        before = np.cumsum([0, *(len(units.lengths) for units in several[:-1])])
        parts["row"] += np.repeat(before, [len(units.parts) for units in several]).astype(np.uint32)
        tokens = np.concatenate([units.tokens for units in several])
        return cls(tokens, np.concatenate([units.lengths for units in several]), parts)

    def sort(self, seed: int) -> tuple[NDArray[np.intp], Keys]:
        """The numbers of the units in the order of a shuffle, and their keys in this order."""
        firsts = self.parts[self.parts["start"] == 0]
        places = (firsts["file"], firsts["position"], firsts["offset"])
        keys = keys_of(seed, *places)
        order = sort_units(keys, *places)
        return order, keys[order]


class OrderedUnits:
    """Units in an order, of which any stretch can be taken. `lengths` i64[n]: tokens of each, padding included."""

    def __init__(self, units: Units, order: NDArray[np.intp]) -> None:
        self.lengths = units.lengths[order]
        self._tokens = units.tokens
        self._starts = (np.cumsum(units.lengths) - units.lengths)[order]
        self._ends = np.cumsum(self.lengths)
        counts = np.bincount(units.parts["row"], minlength=len(units.lengths))
        self._parts = units.parts[_places((np.cumsum(counts) - counts)[order], counts[order])]
        self._parts["row"] = np.repeat(np.arange(len(order)), counts[order])
        self._first_parts = np.concatenate(([0], np.cumsum(counts[order])))

    def parts(self, first: int, end: int) -> PartArray:
        """The parts of units [first, end), whose `row` counts from the first of them."""
        parts = self._parts[self._first_parts[first] : self._first_parts[end]].copy()
        parts["row"] -= np.uint32(first)
        return parts

    def tokens(self, first: int, end: int) -> Iterator[tuple[TokenArray, int]]:
        """The tokens of units [first, end), some whole units at a time, and behind which unit each time ends."""
        while first < end:
            done = int(self._ends[first - 1]) if first else 0
            last = min(end, max(first + 1, int(np.searchsorted(self._ends, done + _GATHERED, side="right"))))
            if last == first + 1:  # it may be longer than what is moved at once
                begin = int(self._starts[first])
                yield self._tokens[begin : begin + int(self.lengths[first])], last
            else:
                yield self._tokens[_places(self._starts[first:last], self.lengths[first:last])], last
            first = last


def _places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each of `starts` on, `lengths` of them, one run after the other."""
    begins = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - begins, lengths)
    return places


def parts_of_documents(
    files: NDArray[np.integer], positions: NDArray[np.integer], lengths: NDArray[np.integer]
) -> PartArray:
    """Each whole document as a unit of its own."""
    parts = np.zeros(len(lengths), dtype=PART)
    parts["file"], parts["position"], parts["length"] = files, positions, lengths
    parts["row"] = np.arange(len(lengths))
    return parts
