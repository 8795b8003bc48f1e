"""What the trainer of sentencepiece is given: a line for each piece, and how many characters become tokens.

A line is text, tab, count. The trainer would refuse a tab in the text, and leave out a line with U+2585, which it uses
itself: characters that occur nowhere stand for both. It cannot learn from a piece of 200,000 letters (its sums
overflow), so pieces are cut after 1,024 bytes. No piece is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.compiled import Longs
from tokenization_worker.training.pieces import Pieces

MOST_PIECE_BYTES = 1024
"""Longer pieces are cut: tokens have at most 16 characters, so a cut costs one token at most."""

COVERAGE, LEAST_COVERAGE = 0.9995, 0.98
"""Share of the text whose characters become tokens: the trainer's default, and the least that it takes."""

_NEVER_LEARNED = ("\t", "\u2585")
_BLOCK = 1 << 16


def choose_stand_ins(pieces: Pieces, special_tokens: tuple[str, ...]) -> dict[bytes, bytes]:
    """For each character that the trainer does not take, one for private use that no piece and no token has."""
    texts = [pieces.text.tobytes(), *(token.encode() for token in special_tokens)]
    unused = (
        character for character in map(_encode, range(0x10FFFD, 0xEFFFF, -1)) if not any(character in t for t in texts)
    )
    return {character.encode(): next(unused) for character in _NEVER_LEARNED}


def _encode(point: int) -> bytes:
    return chr(point).encode()


def write_lines(pieces: Pieces, stand_ins: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """The lines of all pieces, in order."""
    for piece, count in pieces.items():
        for character, stand_in in stand_ins.items():
            if character in piece:
                piece = piece.replace(character, stand_in)
        for part in _cut(piece):
            yield b"%b\t%d" % (part, count)


def _cut(piece: bytes) -> Iterator[bytes]:
    """Parts of at most `MOST_PIECE_BYTES`, cut between characters."""
    start = 0
    while len(piece) - start > MOST_PIECE_BYTES:
        end = start + MOST_PIECE_BYTES
        while piece[end] & 0xC0 == 0x80:  # inside of a character
            end -= 1
        yield piece[start:end]
        start = end
    yield piece[start:]


def count_characters(pieces: Pieces) -> Longs:
    """How often each character that can be a token occurs, i64[n], the most frequent first. Memory: some MB."""
    totals = np.zeros(0x110000, np.int64)
    starts = pieces.starts
    for first in range(0, len(pieces), _BLOCK):
        ends, counts = pieces.ends[first : first + _BLOCK], pieces.counts[first : first + _BLOCK]
        text = pieces.text[starts[first] : ends[-1]]
        begins: NDArray[np.int64] = ((text & 0xC0) != 0x80).astype(np.int64)
        sizes = np.add.reduceat(begins, starts[first : first + _BLOCK] - starts[first])
        points = np.frombuffer(text.tobytes().decode().encode("utf-32-le"), "<u4")
        np.add.at(totals, points, np.repeat(counts, sizes))
    totals[0] = 0  # ends a string of the trainer's
    return np.sort(totals[totals > 0])[::-1]


def choose_coverage(counts: Longs, most: int) -> float:
    """The share of the text that is covered by as many of the most frequent characters as may become tokens, `most`;
    `COVERAGE` where fewer do."""
    reached = np.cumsum(counts) / max(1, int(counts.sum()))
    if most >= len(reached) or reached[max(0, most - 1)] >= COVERAGE:
        return COVERAGE
    return max(LEAST_COVERAGE, float(np.float32(reached[max(0, most - 1)])))
