"""`verify` reads Megatron's `.idx` by itself: any number that does not fit is a problem, however large it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from support.format_oracle import files_of
from tokenization_worker.verification.formats.base import Expected
from tokenization_worker.verification.formats.megatron import MEGATRON

U16 = np.dtype("<u2")
TOKENS = np.arange(300, dtype=U16)
LENGTHS = [100, 1, 199]
BIN, IDX = files_of("Megatron", TOKENS, LENGTHS)


def problems_of(idx: bytes, lengths: list[int] | None = LENGTHS) -> list[tuple[int, str]]:
    """Number of the file and what it must have, of each problem."""
    scan = MEGATRON.scan(U16)
    assert np.array_equal(np.concatenate([scan.take(0, BIN), scan.take(1, idx[:30]), scan.take(1, idx[30:])]), TOKENS)
    known = None if lengths is None else np.array(lengths, np.uint32)
    return [(problem.number, problem.expected) for problem in scan.problems(Expected(300, known))]


def changed(at: int, new: bytes) -> bytes:
    return IDX[:at] + new + IDX[at + len(new) :]


@pytest.mark.parametrize("lengths", [LENGTHS, None])
def test_a_right_index_has_no_problem(lengths: list[int] | None) -> None:
    assert problems_of(IDX, lengths) == []


LARGE = {
    "all bits": b"\xff" * 16,
    "all bits, then none": b"\xff" * 8 + bytes(8),
    "all bits but one, then all": b"\xfe" + b"\xff" * 15,
}


@pytest.mark.parametrize("counts", LARGE.values(), ids=LARGE)
def test_counts_that_no_index_has_are_one_problem(counts: bytes) -> None:
    [(number, expected)] = problems_of(changed(18, counts))
    assert number == 1
    assert expected.startswith(("the header of an .idx of 18,446,744,073,709,551,61", "368,934,881,474,191,032,3"))


WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "magic": (lambda: changed(0, b"N"), "the header of an .idx of 3 entries of uint16"),
    "version": (lambda: changed(9, b"\x02"), "the header of an .idx of 3 entries of uint16"),
    "type": (lambda: changed(17, b"\x04"), "the header of an .idx of 3 entries of uint16"),
    "number of documents": (lambda: changed(26, b"\x05"), "the header of an .idx of 3 entries of uint16"),
    "cut in its header": (lambda: IDX[:33], "102 bytes for 3 entries"),
    "one entry less": (lambda: IDX[:-20], "102 bytes for 3 entries"),
    "pointer": (lambda: changed(34 + 12 + 8, b"\x01"), "each entry's offset where the entry before it ends"),
    "border": (lambda: changed(len(IDX) - 8, b"\x02"), "one document an entry: 0 to 3"),
}


@pytest.mark.parametrize(("make", "expected"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_a_problem_of_the_index(make: Callable[[], bytes], expected: str) -> None:
    assert problems_of(make()) == [(1, expected)]


def test_an_empty_index_is_a_problem() -> None:
    assert problems_of(b"") == [(1, "the header of an .idx of 0 entries of uint16")]
