"""Explains why tokens differ: finds the simplest fault after which most tokens match again. Pure.

Tried are: documents left out, tokens put in, documents replaced by other tokens, two documents in each
other's place. What is found is a fault whatever the history; the history makes the finding worth reading and lets the
comparison go on behind it, so that one fault is one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenization_worker.verification.stream import Tokens

LOOK_AHEAD = 8
"""Documents that may be lost or swapped at once and still be told from other faults."""

_SIGNATURE = 32
"""Tokens by which the place where things agree again is looked for; what follows decides."""

_PLACES = 64


@dataclass(frozen=True, slots=True)
class History:
    """`documents` expected ones account for `tokens` tokens that were found; then everything agrees again.

    `swapped`: which later document has the first one's place; 0: none.
    """

    documents: int
    tokens: int
    swapped: int = 0


def explain(expected: Sequence[Tokens], found: Tokens, *, is_end: bool) -> History | None:
    """The best history, or None if nothing agrees again. The first tokens of `expected` and `found` differ.

    `is_end`: after both nothing more comes. Where it is false, `found` should be longer than what is expected.
    """
    best: tuple[int, History] | None = None
    for agreed, history in _histories(list(expected), found, is_end):
        if agreed and (best is None or agreed > best[0]):
            best = agreed, history
    return best[1] if best else None


def _histories(expected: list[Tokens], found: Tokens, is_end: bool) -> Iterator[tuple[int, History]]:
    """Histories with the number of tokens that agree in each; a token more for agreeing to the end."""
    for gone in range(min(len(expected), LOOK_AHEAD) + 1):
        rest = _join(expected[gone:])
        if not len(rest):
            if is_end:
                yield 1, History(gone, len(found))
            continue
        for place in find_places(found, rest[:_SIGNATURE]):
            if (gone, place) != (0, 0):
                yield _agreed(rest, found[place:], is_end), History(gone, place)
    for other in range(1, min(len(expected), LOOK_AHEAD)):
        if np.array_equal(found[: len(expected[other])], expected[other]):
            swapped = _join([expected[other], *expected[1:other], expected[0]])
            agreed = _agreed(_join([swapped, *expected[other + 1 :]]), found, is_end)
            if agreed >= len(swapped):
                yield agreed, History(other + 1, len(swapped), other)


def _agreed(expected: Tokens, found: Tokens, is_end: bool) -> int:
    """Tokens that agree from the start, one more if they do to the end of what is known."""
    both = min(len(expected), len(found))
    differ = np.flatnonzero(expected[:both] != found[:both])
    if len(differ):
        return int(differ[0])
    to_end = len(expected) == len(found) if is_end else both == len(expected)
    return both + to_end


def find_places(tokens: Tokens, pattern: Tokens) -> list[int]:
    """The first places at which `pattern` stands in `tokens`."""
    last = len(tokens) - len(pattern) + 1
    if last <= 0:
        return []
    places = np.flatnonzero(tokens[:last] == pattern[0])
    for offset in range(1, len(pattern)):
        if not len(places):
            break
        places = places[tokens[places + offset] == pattern[offset]]
    return [int(place) for place in places[:_PLACES]]


def _join(parts: list[Tokens]) -> Tokens:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
