"""The order of a shuffle: units sorted by a key that their place in the source gives them.

    key = m(m(m(m(seed) + file) + position) + offset)

m(x) is the finalizer of SplitMix64 (Steele, Lea, Flood 2014) of x + 0x9E3779B97F4A7C15; all numbers modulo 2^64. A key
depends on the seed and the place alone, so no cut, process or count can change the order. Units of equal keys follow
each other by place: file, position, offset.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

KEY_BITS = 64

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mix(numbers: Keys) -> Keys:
    """m(x) of each number, u64[n]."""
    with np.errstate(over="ignore"):
        z = numbers + _GAMMA
        z = (z ^ (z >> np.uint64(30))) * _FACTORS[0]
        z = (z ^ (z >> np.uint64(27))) * _FACTORS[1]
        mixed: Keys = z ^ (z >> np.uint64(31))
    return mixed


def keys_of(
    seed: int, files: NDArray[np.integer], positions: NDArray[np.integer], offsets: NDArray[np.integer]
) -> Keys:
    """The keys u64[n] of units whose first tokens are at these places: the number of the file, the position of the
    document in the file, and the offset within the document.
    """
    with np.errstate(over="ignore"):
        start = mix(np.array([seed], np.uint64))
        by_file = mix(start + files.astype(np.uint64))
        by_position = mix(by_file + positions.astype(np.uint64))
        return mix(by_position + offsets.astype(np.uint64))


def cells_of(keys: Keys, n_cells: int) -> NDArray[np.int64]:
    """The cell i64[n] of each key: its top bits. `n_cells` is a power of two."""
    bits = n_cells.bit_length() - 1
    if not bits:
        return np.zeros(len(keys), np.int64)
    return (keys >> np.uint64(KEY_BITS - bits)).astype(np.int64)


def sort_units(
    keys: Keys, files: NDArray[np.integer], positions: NDArray[np.integer], offsets: NDArray[np.integer]
) -> NDArray[np.intp]:
    """The numbers of the units in their order, by key and then by place."""
    return np.lexsort((offsets, positions, files, keys))
