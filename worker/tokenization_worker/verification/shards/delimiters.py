"""Checks that delimiters stand where a shard's documents begin and end, and nowhere else.

A run lets no text become a delimiter, so one at another place, or another token at its place, is damage even where all
checksums are right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.sidecar import Sidecar

_Places = NDArray[np.int64]


class DelimiterCheck:
    """One pass over the tokens of a shard, whose sidecar says where documents begin and end.

    Keeps the first difference of each delimiter. Memory: a byte a token of a chunk, and 16 a document.
    """

    def __init__(self, facts: Facts, sidecar: Sidecar) -> None:
        self._ends = sidecar.ends
        self._begins_whole = not sidecar.skipped
        self._ends_whole = not sidecar.continues
        names = ("the begin token", "the end token") if len(facts.delimiter_ids) == 2 else ("the delimiter",) * 2
        sides = ((facts.begin_id, "first", self._begins), (facts.end_id, "last", self._lasts))
        self._sides = [
            (f"{name} {token}", token, which, places)
            for name, (token, which, places) in zip(names, sides, strict=True)
            if token is not None
        ]
        self._found: dict[str, tuple[str, str, int]] = {}

    def take(self, start: int, tokens: NDArray[np.unsignedinteger]) -> None:
        """Look at the next tokens of the shard; `start`: the number of the first of them."""
        for name, token, which, places in self._sides:
            if name in self._found:
                continue
            is_there, expected = tokens == token, places(start, start + len(tokens))
            if np.count_nonzero(is_there) == len(expected) and is_there[expected - start].all():
                continue
            wrong = np.setxor1d(np.flatnonzero(is_there) + start, expected)
            if len(wrong):  # a sidecar with entries of no tokens, which is reported, has places twice
                at = int(wrong[0])
                is_missing = at in expected
                words = f"{name} {'' if is_missing else 'only '}as the {which} token of a document"
                self._found[name] = (words, f"token {tokens[at - start]}" if is_missing else "it inside a document", at)

    def findings(self, path: str) -> list[Finding]:
        """The differences, in the shard at `path`."""
        return [
            Finding(Fault.DELIMITER_WRONG, expected, found, path, at) for expected, found, at in self._found.values()
        ]

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
