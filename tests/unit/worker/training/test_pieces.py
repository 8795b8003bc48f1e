"""Tables of pieces: counted, grown, sorted, stored."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tokenization_worker.training.counting import PieceTable
from tokenization_worker.training.pieces import Pieces


def pieces_of(counts: dict[bytes, int]) -> Pieces:
    ends = np.cumsum([len(piece) for piece in counts], dtype=np.int64)
    return Pieces(np.frombuffer(b"".join(counts), np.uint8), ends, np.array(list(counts.values()), np.int64))


def random_counts(size: int, seed: int) -> dict[bytes, int]:
    """Many share their first 16 bytes, and some are longer than a table's first arena."""
    numbers = random.Random(seed)
    found = {numbers.randbytes(numbers.randrange(1, 6)): numbers.randrange(1, 1000) for _ in range(size)}
    found |= {b"\0" * length: length for length in range(1, 40)}
    found |= {b"=" * 16 + numbers.randbytes(numbers.randrange(0, 4)): 3 for _ in range(200)}
    found[b"x" * 300_000] = 2
    return found


def test_a_table_adds_what_comes_in_any_order() -> None:
    first, second = random_counts(40_000, 1), random_counts(40_000, 2)
    table = PieceTable()
    for counts in (first, second, first):
        table.add(pieces_of(counts))
    expected = Counter(first) + Counter(second) + Counter(first)
    assert table.size_bytes > sum(map(len, expected))
    taken = table.take().sort()
    assert list(taken.items()) == sorted(expected.items())
    assert taken.total == expected.total()
    assert (len(table.take()), table.size_bytes) == (0, 0)


def test_the_digest_is_of_pieces_and_counts_and_not_of_their_order() -> None:
    counts = random_counts(500, 3)
    mixed = dict(sorted(counts.items(), key=lambda item: hash(item)))
    assert pieces_of(counts).sort().digest() == pieces_of(mixed).sort().digest()
    assert pieces_of(counts | {b"more": 1}).sort().digest() != pieces_of(counts).sort().digest()
    longer = counts | {b"x" * 300_000: 3}
    assert pieces_of(longer).sort().digest() != pieces_of(counts).sort().digest()


@pytest.mark.parametrize("counts", [{}, {b"a": 1}, random_counts(300, 4)], ids=["none", "one", "many"])
def test_a_stored_table_comes_back(counts: dict[bytes, int]) -> None:
    data = pieces_of(counts).to_bytes()
    assert dict(Pieces.from_bytes(data).items()) == counts
    assert data == pieces_of(counts).to_bytes()  # no time or name of a machine is in it


def test_bytes_that_are_no_table_are_named() -> None:
    data = pieces_of(random_counts(300, 4)).to_bytes()
    for damaged in (data[:-30], b"", data[:200] + bytes([data[200] ^ 1]) + data[201:]):
        with pytest.raises(ValueError, match="table of pieces"):
            Pieces.from_bytes(damaged)
