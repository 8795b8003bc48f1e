"""A random order of the numbers below n, of which any stretch can be computed alone. Pure.

A Feistel network permutes the numbers of an even count of bits; a number that comes out above n is sent through again
(cycle walking). So an order needs no memory, a start in the middle costs nothing, and no library's version changes it.
Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002. The round function is the finalizer of
SplitMix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15


def permuted(places: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """The numbers at `places` i64[m] of the order of [0, n) that `seed` (0 to 2^64 - 1) chooses: i64[m]."""
    half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
    keys = [np.uint64(((seed + 1) * _GOLDEN + number * 0xD1B54A32D192ED03) % 2**64) for number in range(_ROUNDS)]
    found = places.astype(np.uint64)
    waiting = np.arange(len(found))
    while len(waiting):
        found[waiting] = _shuffle_bits(found[waiting], half, keys)
        waiting = waiting[found[waiting] >= n]
    return found.astype(np.int64)


def _shuffle_bits(numbers: NDArray[np.uint64], half: np.uint64, keys: list[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of the numbers of 2 * `half` bits."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half) | right


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
