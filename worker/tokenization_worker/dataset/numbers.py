"""Checks the numbers that a caller asks with: of rows, tokens, files and processes."""

from __future__ import annotations

import operator

import numpy as np


def require_whole(name: str, value: object, expected: str = "a whole number") -> int:
    """`value` as an int, also of a numpy type; raises `TypeError` for anything else, and for a bool."""
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{name}: expected {expected}, found {value!r:.80}")
