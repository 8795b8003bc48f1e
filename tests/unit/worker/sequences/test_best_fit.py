"""Best-fit packing against a textbook's loop, and what it must hold whatever the lengths."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.row_oracle import Document, pack
from tokenization_worker.sequences.best_fit import block_borders, pack_documents


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_rows_are_those_of_a_textbook_loop(first: int) -> None:
    for seed in range(first, first + 250):
        chance = random.Random(seed)
        length = chance.randrange(2, 40)
        most = chance.choice([None, None, 1, 2, 3, 5])
        longest = chance.choice([2, length // 2 + 1, length, 3 * length])
        lengths = [chance.randrange(longest + 1) for _ in range(chance.randrange(50))]
        documents = [Document(0, number, "", [0] * size) for number, size in enumerate(lengths)]
        expected = [
            (document.position, offset, size, row)
            for row, pieces in enumerate(pack(documents, length, most))
            for document, offset, size in pieces
        ]
        packed = pack_documents(np.array(lengths, np.uint32), length, most)
        found = zip(*(each.tolist() for each in packed[:4]), strict=True)
        assert list(found) == expected, seed
        assert packed.n_rows == max((row for *_, row in expected), default=-1) + 1


def test_a_million_documents_of_many_lengths_fill_their_rows() -> None:
    """None that fits is cut, no row is over-full, and pieces in a row are in the order of the source."""
    lengths = np.random.default_rng(0).geometric(1 / 300, 1_000_000)
    packed = pack_documents(lengths, 2048)
    assert packed.lengths.sum() == lengths.sum()
    assert np.array_equal(np.bincount(packed.documents), -(-lengths // 2048))
    used = np.bincount(packed.rows, packed.lengths)
    assert used.max() <= 2048
    assert packed.n_rows <= 1.001 * lengths.sum() / 2048
    is_same = np.diff(packed.rows) == 0
    assert (np.diff(packed.documents)[is_same] > 0).all()
    assert (packed.starts[1:] == packed.starts[:-1] + packed.lengths[:-1])[is_same].all()
    assert (np.diff(packed.documents[packed.starts == 0]) >= 0).all()


@pytest.mark.parametrize(
    ("window", "length", "expected"),
    [
        (100, 10, [0, 100]),
        (100_000_000, 2048, [0, 16_666_666, 33_333_333, 50_000_000, 66_666_666, 83_333_333, 100_000_000]),
        (1 << 25, 1 << 20, [0, 1 << 25]),
        (1 << 25, 4, [0, 1 << 24, 1 << 25]),
    ],
)
def test_a_window_has_blocks_of_equal_size(window: int, length: int, expected: list[int]) -> None:
    assert block_borders(window, length).tolist() == expected
