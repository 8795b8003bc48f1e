"""The order of a shuffle: uniform, fixed by the seed, and the same in two implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support import shuffle_oracle
from tokenization_worker.sequences.order import cells_of, keys_of, sort_units
from tokenization_worker.verification import order as verified

SEEDS = st.integers(0, 2**53 - 1)
PLACES = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=20
)


@given(SEEDS, PLACES)
def test_keys_are_those_of_the_definition_for_writers_and_for_verify(
    seed: int, places: list[tuple[int, int, int]]
) -> None:
    files, positions, offsets = (np.array(values) for values in zip(*places, strict=True))
    expected = [shuffle_oracle.key(seed, *place) for place in places]
    assert keys_of(seed, files, positions, offsets).tolist() == [key for key, *_ in expected]
    assert verified.keys_of(seed, files, positions, offsets).tolist() == [key for key, *_ in expected]
    order = sort_units(keys_of(seed, files, positions, offsets), files, positions, offsets)
    assert [expected[number] for number in order] == sorted(expected)


def first_documents(count: int) -> tuple[NDArray[np.int64], ...]:
    """Their places."""
    return np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.int64)


@pytest.mark.parametrize("n_cells", [1, 2, 8, 1 << 14])
def test_cells_ascend_with_keys(n_cells: int) -> None:
    keys = np.sort(keys_of(3, *first_documents(5000)))
    cells = cells_of(keys, n_cells)
    assert (np.diff(cells) >= 0).all()
    assert cells[0] >= 0
    assert cells[-1] < n_cells
    counts = np.bincount(cells, minlength=n_cells)
    assert counts.max() <= 5000 / n_cells + 6 * (5000 / n_cells) ** 0.5 + 5


def chi_square(seed: int) -> float:
    """Of source place against place after, 64 by 64 fields; 4,032 degrees of freedom, 3,969 with fixed sums."""
    n = 64 * 64 * 20
    files, positions = np.divmod(np.arange(n), 500)
    after = np.empty(n, np.int64)
    places = (files, positions * 731, np.zeros(n, np.int64))
    after[sort_units(keys_of(seed, *places), *places)] = np.arange(n)
    counts, _, _ = np.histogram2d(np.arange(n), after, bins=64)
    return float(((counts - 20) ** 2 / 20).sum())


QUANTILE_999 = 4251
"""Of chi-square with 3,969 degrees of freedom: 0.999."""


def test_the_order_is_uniform_and_seeds_share_none() -> None:
    values = [chi_square(seed) for seed in range(20)]
    assert max(values) < QUANTILE_999
    assert 3969 - 200 < np.mean(values) < 3969 + 200
    orders = [np.argsort(keys_of(seed, *first_documents(4096))) for seed in range(20)]
    equal = [np.count_nonzero(a == b) for at, a in enumerate(orders) for b in orders[:at]]
    assert max(equal) < 12  # of two random orders one place is equal, on average
    ends = np.concatenate([order[-64:] for order in orders])
    assert 2048 - 200 < ends.mean() < 2048 + 200  # last documents are as random as first ones
