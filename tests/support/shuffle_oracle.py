"""What a shuffled dataset must be, by a loop over all documents in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_MASK = 2**64 - 1


class Document(NamedTuple):
    """A document of one token or more, with its place in the source."""

    file: int
    position: int
    tokens: list[int]


def mix(number: int) -> int:
    """The finalizer of SplitMix64 of number + 0x9E3779B97F4A7C15."""
    z = (number + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def key(seed: int, file: int, position: int, offset: int = 0) -> tuple[int, int, int, int]:
    """What units are sorted by, whose first token is at this place."""
    number = mix(seed)
    for part in (file, position, offset):
        number = mix((number + part) & _MASK)
    return number, file, position, offset


class Shard(NamedTuple):
    """`entries`: of each document in the shard its file, its position, and its number of tokens there; `skipped`:
    tokens of the first one in earlier shards; `continues`: whether the last one goes on in the next shard."""

    tokens: list[int]
    entries: list[tuple[int, int, int]]
    skipped: int
    continues: bool


def shuffle(documents: Sequence[Document], seed: int, shard_tokens: int) -> list[Shard]:
    """The shards of one stream."""
    places = [
        (document, number)
        for document in sorted(documents, key=lambda document: key(seed, document.file, document.position))
        for number in range(len(document.tokens))
    ]
    shards = []
    for start in range(0, len(places), shard_tokens):
        mine = places[start : start + shard_tokens]
        counts: dict[tuple[int, int], int] = {}
        for document, _ in mine:
            counts[document[:2]] = counts.get(document[:2], 0) + 1
        last, number = mine[-1]
        entries = [(*place, count) for place, count in counts.items()]
        tokens = [document.tokens[number] for document, number in mine]
        shards.append(Shard(tokens, entries, mine[0][1], number + 1 < len(last.tokens)))
    return shards
