"""Delimiters stand at the borders of documents and nowhere else: compared with a loop over tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.delimiters import DelimiterCheck
from tokenization_worker.verification.shards.sidecar import Sidecar

BEGIN, END = 7, 9


def check_of(
    lengths: list[int], begin: int | None, end: int | None, *, skipped: int, continues: bool
) -> DelimiterCheck:
    facts: Any = SimpleNamespace(
        begin_id=begin, end_id=end, delimiter_ids=tuple(token for token in (begin, end) if token is not None)
    )
    sizes = np.array(lengths, dtype=np.uint32)
    return DelimiterCheck(facts, Sidecar(sizes, np.cumsum(sizes, dtype=np.int64), 0, 0, 0, skipped, continues))


def found_by(check: DelimiterCheck, tokens: list[int], chunk: int) -> list[tuple[int | None, str]]:
    for at in range(0, len(tokens), chunk):
        check.take(at, np.array(tokens[at : at + chunk], dtype=np.uint16))
    findings = check.findings("train/0.npy")
    assert {finding.fault for finding in findings} <= {Fault.DELIMITER_WRONG}
    assert {finding.path for finding in findings} <= {"train/0.npy"}
    return [(finding.token, finding.expected) for finding in findings]


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    flips=st.dictionaries(st.integers(0, 39), st.sampled_from([1, BEGIN, END]), max_size=3),
    delimiters=st.sampled_from([(BEGIN, None), (None, END), (BEGIN, END), (None, None)]),
    skipped=st.integers(0, 2),
    continues=st.booleans(),
    chunk=st.integers(1, 12),
)
def test_the_first_wrong_token_of_each_side_is_that_of_a_loop(
    lengths: list[int],
    flips: dict[int, int],
    delimiters: tuple[int | None, int | None],
    skipped: int,
    continues: bool,
    chunk: int,
) -> None:
    begin, end = delimiters
    tokens: list[int] = []
    firsts: set[int] = set()
    lasts: set[int] = set()
    for number, length in enumerate(lengths):
        begun = number > 0 or not skipped
        ended = number < len(lengths) - 1 or not continues
        firsts |= {len(tokens)} if begun else set()
        tokens += [1] * length
        lasts |= {len(tokens) - 1} if ended else set()
    for places, token in ((firsts, begin), (lasts, end)):
        for place in places if token is not None else ():
            tokens[place] = token or 0
    for place, token in flips.items():
        if place < len(tokens):
            tokens[place] = token
    expected = []
    for token, places in ((begin, firsts), (end, lasts)):
        wrong = [at for at, found in enumerate(tokens) if (found == token) != (at in places)]
        expected += wrong[:1] if token is not None else []
    check = check_of(lengths, begin, end, skipped=skipped, continues=continues)
    assert [at for at, _ in found_by(check, tokens, chunk)] == expected


@pytest.mark.parametrize("lengths", [[0, 2], [2, 0], [2, 0, 0, 2], [0]])
def test_entries_of_no_tokens_are_not_its_business(lengths: list[int]) -> None:
    """The check of the sidecar reports them."""
    tokens = [token for length in lengths if length for token in (BEGIN, END)]
    check = check_of(lengths, BEGIN, END, skipped=0, continues=False)
    assert found_by(check, tokens, 3) == []


def test_one_delimiter_is_called_so() -> None:
    check = check_of([2, 2], None, END, skipped=0, continues=False)
    assert found_by(check, [1, END, 1, 2], 4) == [(3, "the delimiter 9 as the last token of a document")]
