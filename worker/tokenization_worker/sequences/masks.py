"""Dense masks of a row, made from its parts. Pure.

`length` is the row's, in tokens; `parts` are those of this row alone, in order. A token that no part covers is padding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.sequences.parts import PartArray


def segment_ids(parts: PartArray, length: int) -> NDArray[np.int32]:
    """i32[length]: 1 for the tokens of the first part, 2 for those of the second; 0 for padding."""
    ids = np.zeros(length, dtype=np.int32)
    covered = np.repeat(np.arange(1, len(parts) + 1, dtype=np.int32), parts["length"])
    ids[_places(parts)] = covered
    return ids


def positions(parts: PartArray, length: int) -> NDArray[np.int32]:
    """i32[length]: each token's place in its part, from 0; 0 for padding."""
    found = np.zeros(length, dtype=np.int32)
    places = _places(parts)
    found[places] = places - np.repeat(parts["start"].astype(np.int64), parts["length"])
    return found


def cu_seqlens(parts: PartArray) -> NDArray[np.int32]:
    """i32[parts + 1]: where each part ends, from 0, as attention over packed sequences takes it. Padding is behind the
    last one and not counted."""
    return np.concatenate([[0], np.cumsum(parts["length"], dtype=np.int32)]).astype(np.int32)


def attention_mask(parts: PartArray, length: int) -> NDArray[np.bool_]:
    """bool[length, length]: [q, k] is whether token q may attend to token k: itself, and those before it in its part.

    A token of padding attends to itself alone, so that no row of a softmax is empty.
    """
    ids = segment_ids(parts, length)
    is_same: NDArray[np.bool_] = (ids[:, None] == ids[None, :]) & (ids[:, None] > 0)
    mask: NDArray[np.bool_] = np.tril(is_same)
    np.fill_diagonal(mask, True)
    return mask


def loss_mask(parts: PartArray, length: int, *, is_delimiter_learned: bool) -> NDArray[np.bool_]:
    """bool[length - 1]: whether the prediction of token t + 1 from token t counts.

    It counts inside of a part, never of padding. `is_delimiter_learned`: it also counts where the next part begins with
    its document: there stands the delimiter, which is then the only sign that a document has ended.
    """
    ids = segment_ids(parts, length)
    mask: NDArray[np.bool_] = (ids[1:] == ids[:-1]) & (ids[1:] > 0)
    if is_delimiter_learned:
        begins = parts["start"][(parts["offset"] == 0) & (parts["start"] > 0)].astype(np.int64)
        mask[begins - 1] = True
    return mask


def _places(parts: PartArray) -> NDArray[np.int64]:
    """The tokens that parts cover, in order."""
    lengths = parts["length"].astype(np.int64)
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(parts["start"] - (ends - lengths), lengths)
    return places
