"""The order of a shuffle, and the sums that do not depend on it. Written from docs/layout.md, apart from what writes.

m(x) is the finalizer of SplitMix64 of x + 0x9E3779B97F4A7C15, modulo 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_SALT = 0x746F6B6A6F62
"""Keeps the choice of a sample apart from the order."""


def mix(x: U64) -> U64:
    """m(x), u64[n]."""
    z = np.add(x, np.uint64(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= np.right_shift(z, np.uint64(shift))
        np.multiply(z, np.uint64(factor), out=z)
    z ^= np.right_shift(z, np.uint64(31))
    return z


def hash_places(start: int | U64, files: NDArray[Any], positions: NDArray[Any]) -> U64:
    """m(m(m(start) + file) + position), u64[n]; `start`: one number, or one of each place."""
    begin = mix(np.array(start, np.uint64, ndmin=1))
    return mix(np.add(mix(np.add(begin, files.astype(np.uint64))), positions.astype(np.uint64)))


def mix_offsets(places: U64, offsets: NDArray[Any]) -> U64:
    """m(place + offset): the key of units whose first token is this one of the document with the hash `places`."""
    return mix(np.add(places, offsets.astype(np.uint64)))


def keys_of(seed: int, files: NDArray[Any], positions: NDArray[Any], offsets: NDArray[Any]) -> U64:
    """The keys of the units whose first tokens are these."""
    return mix_offsets(hash_places(seed, files, positions), offsets)


def are_chosen(files: NDArray[Any], positions: NDArray[Any], one_in: int) -> NDArray[np.bool_]:
    """Which documents a sample takes, by a hash of their places."""
    if one_in == 1:
        return np.ones(len(positions), np.bool_)
    chosen: NDArray[np.bool_] = hash_places(_SALT, files, positions) % np.uint64(one_in) == 0
    return chosen


def hash_tokens(places: U64, numbers: NDArray[Any], ids: NDArray[Any]) -> U64:
    """h(file, position, number of the token in its document, id) of tokens, whose documents have the hash `places`."""
    return mix(np.add(mix_offsets(places, numbers), ids.astype(np.uint64)))
