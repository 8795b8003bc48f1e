"""Rows that have the tokens of others are told from every other fault."""

from __future__ import annotations

import numpy as np
import pytest

from tokenization_worker.verification.moved_rows import Place, find_moved_rows

LENGTH = 10
RIGHT = np.arange(8 * LENGTH).reshape(8, LENGTH)


def place(rows: np.ndarray, row: int, column: int = 0) -> Place:
    """Where token `column` of row `row` is the first wrong one."""
    return Place(rows, row, column, RIGHT.reshape(-1)[row * LENGTH + column :])


def changed(order: list[int]) -> np.ndarray:
    return RIGHT[order]


@pytest.mark.parametrize(
    ("order", "row", "moved"),
    [
        ([0, 1, 3, 2, 4, 5, 6, 7], 2, {2: 3, 3: 2}),
        ([0, 1, 5, 3, 4, 2, 6, 7], 2, {2: 5, 5: 2}),
        ([0, 1, 1, 3, 4, 5, 6, 7], 2, {2: 1}),
        ([0, 1, 2, 3, 4, 5, 6, 5], 7, {7: 5}),
        ([0, 1, 1, 2, 3, 4, 5, 6], 2, {}),  # one put in: everything behind it is elsewhere
        ([0, 1, 3, 4, 5, 6, 7, 7], 2, {}),  # one lost
    ],
)
def test_swapped_and_doubled_rows_are_found(order: list[int], row: int, moved: dict[int, int]) -> None:
    assert find_moved_rows(place(changed(order), row)) == moved


def test_a_row_whose_begin_is_equal_is_found_by_the_rest() -> None:
    rows = changed([0, 1, 3, 2, 4, 5, 6, 7])
    rows[2, :2] = RIGHT[2, :2]
    assert find_moved_rows(place(rows, 2, 2)) == {2: 3, 3: 2}


@pytest.mark.parametrize("column", [0, 4, 9])
def test_another_token_is_no_moved_row(column: int) -> None:
    rows = RIGHT.copy()
    rows[2, column] = 999
    assert find_moved_rows(place(rows, 2, column)) == {}


def test_a_few_tokens_that_another_row_has_too_are_no_moved_row() -> None:
    rows = RIGHT.copy()
    rows[2, 7:] = rows[5, 7:]
    assert find_moved_rows(place(rows, 2, 7)) == {}
