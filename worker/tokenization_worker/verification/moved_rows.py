"""Explains why tokens of a row differ: the row has the tokens of another one. Pure.

As with `explain`, what is found is a fault whatever the explanation; it makes the finding worth reading, and the
comparison goes on behind the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenization_worker.verification.stream import Tokens

_LEAST = 8
"""Tokens that must agree with those of another row, if a row has so many behind the first difference."""

_BEHIND = 32
"""Tokens behind the row that must be right again."""


class Place(NamedTuple):
    """Where a comparison is: token `column` of row `row` of `rows`, and the tokens `expected` from there on."""

    rows: Tokens  # i64[n x length]: some rows around it, as they are
    row: int
    column: int
    expected: Tokens


def find_moved_rows(place: Place) -> dict[int, int]:
    """Rows, by number in `place.rows`, that have the tokens of another row: that row's number. Empty: there are none.

    Either the row alone is wrong, or it and a later one are in each other's place.
    """
    length = place.rows.shape[1]
    size = min(length - place.column, len(place.expected))
    if size < min(_LEAST, length):
        return {}
    columns = place.rows[:, place.column : place.column + size]
    there, wanted = columns[place.row], place.expected[:size]
    other = _first_equal(columns, wanted, place.row)
    if other is not None and other > place.row:
        at = (other - place.row) * length
        if np.array_equal(place.expected[at : at + size], there):
            return {place.row: other, other: place.row}
    behind = place.expected[size : size + _BEHIND]
    following = place.rows[place.row + 1 :].reshape(-1)[: len(behind)]
    if not np.array_equal(behind[: len(following)], following):
        return {}
    source = _first_equal(columns, there, place.row)
    found = source if source is not None else other
    return {} if found is None else {place.row: found}


def _first_equal(columns: Tokens, tokens: Tokens, own: int) -> int | None:
    """The first row but the own one that has these tokens."""
    rows = np.flatnonzero((columns == tokens).all(axis=1))
    rows = rows[rows != own]
    return int(rows[0]) if len(rows) else None
