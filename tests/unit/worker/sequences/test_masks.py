"""Dense masks of rows are those of a loop over single tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.sequences import masks
from tokenization_worker.sequences.parts import PART, PartArray

LENGTH = 12


@st.composite
def rows(draw: st.DrawFn) -> PartArray:
    """Parts that follow one another from the row's start; some go on a document of another row."""
    lengths = draw(st.lists(st.integers(1, 5), max_size=5).filter(lambda each: sum(each) <= LENGTH))
    parts = np.zeros(len(lengths), dtype=PART)
    parts["length"] = lengths
    parts["start"] = np.cumsum([0, *lengths])[:-1]
    parts["offset"] = draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    return parts


def owners_of(parts: PartArray) -> list[int | None]:
    """The number of the part of each token; None for padding."""
    found: list[int | None] = [None] * LENGTH
    for number, part in enumerate(parts):
        for token in range(int(part["start"]), int(part["start"]) + int(part["length"])):
            assert found[token] is None
            found[token] = number
    return found


@given(rows(), st.booleans())
def test_masks_are_those_of_a_loop_over_tokens(parts: PartArray, is_delimiter_learned: bool) -> None:
    owners = owners_of(parts)
    segments = [0 if owner is None else owner + 1 for owner in owners]
    places = [0 if owner is None else token - int(parts[owner]["start"]) for token, owner in enumerate(owners)]
    assert masks.segment_ids(parts, LENGTH).tolist() == segments
    assert masks.positions(parts, LENGTH).tolist() == places
    ends = [
        0,
        *(token + 1 for token, owner in enumerate(owners) if owner is not None and owner not in owners[token + 1 :]),
    ]
    assert masks.cu_seqlens(parts).tolist() == ends
    allowed = [
        [q == k or (owners[q] is not None and owners[q] == owners[k] and k < q) for k in range(LENGTH)]
        for q in range(LENGTH)
    ]
    assert masks.attention_mask(parts, LENGTH).tolist() == allowed
    counts = []
    for owner, following, place in zip(owners, owners[1:], places[1:], strict=False):
        if following is None:
            counts.append(False)
        elif owner == following:
            counts.append(True)
        else:
            counts.append(is_delimiter_learned and place == 0 and int(parts[following]["offset"]) == 0)
    assert masks.loss_mask(parts, LENGTH, is_delimiter_learned=is_delimiter_learned).tolist() == counts


def test_a_document_that_goes_on_is_no_border_to_learn() -> None:
    """A part of offset 0 at the row's first token has no token before it, and one that goes on has no delimiter."""
    parts = np.array([(0, 0, 0, 0, 3, 7), (9, 0, 0, 3, 4, 0)], dtype=PART)
    learned = masks.loss_mask(parts, 8, is_delimiter_learned=True)
    assert learned.tolist() == [True, True, True, True, True, True, False]
    assert masks.loss_mask(parts, 8, is_delimiter_learned=False).tolist() == [
        True,
        True,
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("dtype", [np.int32])
def test_types_are_those_of_attention_kernels(dtype: type[np.integer]) -> None:
    parts = np.array([(0, 0, 0, 0, 3, 0)], dtype=PART)
    for array in (masks.segment_ids(parts, 4), masks.positions(parts, 4), masks.cu_seqlens(parts)):
        assert array.dtype == dtype
