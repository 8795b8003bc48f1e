"""A random order of numbers: each once, any stretch alone, the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.sequences.permutation import permuted

GOLDEN = [8, 4, 6, 1, 5, 7, 0, 9, 2, 3]
GOLDEN_LARGE = [261476123650, 806827347208, 742009856539]


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_number_comes_once(n: int, seed: int) -> None:
    order = permuted(np.arange(n), n, seed)
    assert sorted(order.tolist()) == list(range(n))


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.data())
def test_a_stretch_is_that_of_the_whole_order(n: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, n))
    assert permuted(np.arange(start, n), n, seed).tolist() == permuted(np.arange(n), n, seed)[start:].tolist()


def test_an_order_never_changes() -> None:
    """Runs that were stopped go on by it, with any later version."""
    assert permuted(np.arange(10), 10, 0).tolist() == GOLDEN
    assert permuted(np.array([0, 1, 10**12]), 10**12 + 1, 7).tolist() == GOLDEN_LARGE


@pytest.mark.parametrize("n", [1000, 4096, 100_003])
def test_an_order_is_shuffled(n: int) -> None:
    """The sum of products of neighbours, and of places with numbers, is what chance gives, within five deviations."""
    order = permuted(np.arange(n), n, 3).astype(float)
    for other in (np.arange(n), permuted(np.arange(n), n, 4).astype(float), np.roll(order, 1)):
        correlation = np.corrcoef(order, other)[0, 1]
        assert abs(correlation) < 5 / np.sqrt(n)
