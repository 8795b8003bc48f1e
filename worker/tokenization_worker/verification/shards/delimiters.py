"""Checks that delimiters stand where a shard's documents begin and end, and nowhere else.

A run lets no text become a delimiter, so one at another place, or another token at its place, is damage even where all
checksums are right.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.scattered import ScatteredSidecar
from tokenization_worker.verification.shards.sidecar import Sidecar

_Places = NDArray[np.int64]


class Delimiter(NamedTuple):
    """A delimiter that a dataset has: its name in findings, its id, and which token of a document it is."""

    name: str
    token: int
    which: Literal["first", "last"]

    def finding(self, path: str, at: int, *, found: int | None) -> Finding:
        """Token `at` is wrong: another one is there (`found`), or the delimiter is where none belongs (None)."""
        expected = f"{self.name} {'only ' if found is None else ''}as the {self.which} token of a document"
        words = "it inside a document" if found is None else f"token {found}"
        return Finding(Fault.DELIMITER_WRONG, expected, words, path, at)


def delimiters_of(facts: Facts) -> list[Delimiter]:
    """The one before every document, and the one after it."""
    names = ("the begin token", "the end token") if len(facts.delimiter_ids) == 2 else ("the delimiter",) * 2
    sides: tuple[tuple[int | None, Literal["first", "last"]], ...] = ((facts.begin_id, "first"), (facts.end_id, "last"))
    return [
        Delimiter(f"{name} {token}", token, which)
        for name, (token, which) in zip(names, sides, strict=True)
        if token is not None
    ]


class DelimiterCheck:
    """One pass over the tokens of a shard, whose sidecar says where documents begin and end.

    Keeps the first difference of each delimiter. Memory: a byte a token of a chunk, and 16 a document.
    """

    def __init__(self, facts: Facts, sidecar: Sidecar | ScatteredSidecar) -> None:
        self._ends = sidecar.ends
        self._begins_whole = not sidecar.skipped
        self._ends_whole = not sidecar.continues
        self._delimiters = delimiters_of(facts)
        self._found: dict[Delimiter, tuple[int, int | None]] = {}

    def take(self, start: int, tokens: NDArray[np.unsignedinteger]) -> None:
        """Look at the next tokens of the shard; `start`: the number of the first of them."""
        for delimiter in self._delimiters:
            if delimiter in self._found:
                continue
            places = self._begins if delimiter.which == "first" else self._lasts
            is_there, expected = tokens == delimiter.token, places(start, start + len(tokens))
            if np.count_nonzero(is_there) == len(expected) and is_there[expected - start].all():
                continue
            wrong = np.setxor1d(np.flatnonzero(is_there) + start, expected)
            if len(wrong):  # a sidecar with entries of no tokens, which is reported, has places twice
                at = int(wrong[0])
                self._found[delimiter] = at, int(tokens[at - start]) if at in expected else None

    def findings(self, path: str) -> list[Finding]:
        """The differences, in the shard at `path`."""
        found = sorted(self._found.items(), key=lambda item: item[0].which)
        return [delimiter.finding(path, at, found=token) for delimiter, (at, token) in found]

    def _begins(self, start: int, end: int) -> _Places:
        """The first tokens of documents among tokens [start, end): what follows another one, or begins the shard."""
        low, high = np.searchsorted(self._ends, (start, end), side="left")
        places = self._ends[low:high]
        return np.append(0, places) if start == 0 and self._begins_whole else places

    def _lasts(self, start: int, end: int) -> _Places:
        """The last tokens of documents among tokens [start, end)."""
        low, high = np.searchsorted(self._ends, (start, end), side="right")
        if high == len(self._ends) and not self._ends_whole:
            high = max(low, high - 1)
        places: _Places = self._ends[low:high] - 1
        return places
