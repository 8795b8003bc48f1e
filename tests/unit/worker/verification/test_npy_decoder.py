"""`verify` reads `.npy` by itself: numpy's own spelling of a header and nothing else, in parts of any size."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tokenization_worker.verification.formats.base import Expected, Problem
from tokenization_worker.verification.formats.flat import FlatScan
from tokenization_worker.verification.formats.npy import NPY

U16, U32 = np.dtype("<u2"), np.dtype("<u4")


def saved(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def scan_of(content: bytes, dtype: np.dtype = U16, step: int = 1 << 20) -> tuple[FlatScan, list[int]]:
    scan = NPY.scan(dtype)
    parts = [scan.take(0, content[start : start + step]) for start in range(0, len(content), step)]
    return scan, np.concatenate(parts).tolist() if parts else []


@pytest.mark.parametrize("step", [1, 3, 127, 128, 129, 1000])
@pytest.mark.parametrize("dtype", [U16, U32])
def test_tokens_are_those_that_numpy_saved_whatever_the_parts(dtype: np.dtype, step: int) -> None:
    tokens = np.arange(291, dtype=dtype)
    scan, found = scan_of(saved(tokens), dtype, step)
    assert found == tokens.tolist()
    assert (scan.tokens, scan.tokens_seen) == (291, 291)
    assert list(scan.problems(Expected(291, None))) == []
    assert NPY.size(0, 291, dtype) == len(saved(tokens))


TOKENS = np.arange(300, dtype=U16)
RIGHT = saved(TOKENS)
STRANGE = {
    "another type": saved(TOKENS.astype("<i2")),
    "wider tokens": saved(TOKENS.astype(U32)),
    "big-endian": saved(TOKENS.astype(">u2")),
    "two dimensions": saved(TOKENS.reshape(3, 100)),
    "columns first": RIGHT.replace(b"False", b"True "),
    "version 2": RIGHT.replace(b"NUMPY\x01\x00", b"NUMPY\x02\x00"),
    "another magic": RIGHT.replace(b"NUMPY", b"NUMPI"),
    "another length of the header": RIGHT.replace(b"\x76\x00", b"\x75\x00", 1),
    "Python that means the same": RIGHT.replace(b"(300,)", b"(+300)"),
    "a field more": RIGHT.replace(b"), }   ", b"),1:2}"),
    "no line feed": RIGHT[:127] + b" " + RIGHT[128:],
    "cut in its header": RIGHT[:127],
    "empty": b"",
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_any_other_header_is_a_problem(content: bytes) -> None:
    scan, _ = scan_of(content)
    assert scan.tokens is None
    [problem] = scan.problems(Expected(300, None))
    assert problem == Problem(0, "a header of 300 tokens of uint16", repr(content[:128]))


def test_a_header_of_another_number_of_tokens_is_a_problem() -> None:
    scan, _ = scan_of(RIGHT)
    assert scan.tokens == 300
    assert [problem.expected for problem in scan.problems(Expected(299, None))] == ["a header of 299 tokens of uint16"]


def test_half_a_token_at_the_end_is_none() -> None:
    scan, found = scan_of(RIGHT + b"x", step=5)
    assert (found, scan.tokens_seen) == (TOKENS.tolist(), 300)


@pytest.mark.parametrize(("start", "end"), [(0, 300), (0, 1), (299, 300), (5, 5), (298, 310)])
def test_tokens_are_read_by_their_numbers(start: int, end: int) -> None:
    found = NPY.read(lambda number, first, last: RIGHT[first:last], start, end, U16)
    assert found.tolist() == TOKENS[start:end].tolist()
