"""verify's decoder of tars: what is none of a run's rows is a problem, wherever the bytes are cut."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Sequence

import numpy as np
import pytest

from support.format_oracle import files_of
from tokenization_worker.verification.formats.base import Expected
from tokenization_worker.verification.formats.webdataset import WEBDATASET

U16 = np.dtype("<u2")
ROWS = np.arange(30, dtype=U16).reshape(5, 6) * 1000
[TAR] = files_of("WebDataset", ROWS.reshape(-1), [6] * 5, places=[(0, row, 0) for row in range(5)])
EXPECTED = Expected(30, np.full(5, 6, np.uint32))


def scanned(data: bytes, step: int) -> tuple[list[int], list[str]]:
    """Tokens, and what was expected at each problem."""
    scan = WEBDATASET.scan(U16, 6)
    tokens = [token for at in range(0, len(data), step) for token in scan.take(0, data[at : at + step]).tolist()]
    problems = [problem.expected for problem in scan.problems(EXPECTED)]
    assert scan.tokens_seen == len(tokens)
    assert (scan.tokens is None) == (not tokens or any("in " in words or "header" in words for words in problems))
    return tokens, problems


@pytest.mark.parametrize("step", [1, 7, 512, 4000, 10**6])
def test_a_tar_of_any_pieces_gives_its_rows(step: int) -> None:
    assert scanned(TAR, step) == (ROWS.reshape(-1).tolist(), [])


@pytest.mark.parametrize("end", range(0, 31, 3))
def test_tokens_are_read_by_number(end: int) -> None:
    found = WEBDATASET.read(lambda _, start, stop: TAR[start:stop], end // 2, end, U16)
    assert found.tolist() == ROWS.reshape(-1)[end // 2 : end].tolist()


def tar_of(contents: Sequence[bytes], **fields: object) -> bytes:
    data = b""
    for row, content in enumerate(contents):
        member = tarfile.TarInfo(f"00000000_{row:08d}_0-{row:x}-0.json.gz")
        member.size = len(content)
        for name, value in fields.items():
            setattr(member, name, value)
        data += member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    return data + bytes(1024)


def packed(value: object) -> bytes:
    return gzip.compress(json.dumps(value).encode(), 1, mtime=0)


GOOD = [packed(row) for row in ROWS.tolist()]
WRONG = {
    "one row less": (tar_of(GOOD[:-1]), "5 rows"),
    "no end": (TAR[:-512], "two empty blocks at the end"),
    "something behind the end": (TAR + bytes(512), "two empty blocks at the end"),
    "an owner": (tar_of(GOOD, uid=1), "the header of a plain file"),
    "a time": (tar_of(GOOD, mtime=1), "the header of a plain file"),
    "a link": (tar_of(GOOD, type=tarfile.SYMTYPE), "the header of a plain file"),
    "no gzip": (tar_of([b"[1,2,3,4,5,6]"]), "a gzip stream in 00000000_00000000_0-0-0.json.gz"),
    "two streams": (tar_of([GOOD[0] + GOOD[1]]), "one whole gzip stream in"),
    "half a stream": (tar_of([GOOD[0][:-9]]), "one whole gzip stream in"),
    "no list": (tar_of([packed({"1": 2})]), "a list of 6 ids up to 65,535 in"),
    "no JSON": (tar_of([gzip.compress(b"[1,2")]), "a list of 6 ids up to 65,535 in"),
    "texts": (tar_of([packed(["1"] * 6)]), "a list of 6 ids up to 65,535 in"),
    "true": (tar_of([packed([True] * 6)]), "a list of 6 ids up to 65,535 in"),
    "too large": (tar_of([packed([1, 2, 3, 4, 5, 65_536])]), "a list of 6 ids up to 65,535 in"),
    "huge": (tar_of([packed([1, 2, 3, 4, 5, 2**64 - 1])]), "a list of 6 ids up to 65,535 in"),
    "negative": (tar_of([packed([1, 2, 3, 4, 5, -1])]), "a list of 6 ids up to 65,535 in"),
    "another length": (tar_of([packed([1, 2, 3, 4, 5])]), "a list of 6 ids up to 65,535 in"),
    "nothing in it": (tar_of([packed([])]), "a list of 6 ids up to 65,535 in"),
    "other bytes": (b"x" * 2048, "the header of a member"),
}


@pytest.mark.parametrize("step", [100, 10**6])
@pytest.mark.parametrize(("data", "words"), WRONG.values(), ids=WRONG)
def test_what_no_run_writes_is_a_problem(data: bytes, words: str, step: int) -> None:
    _, problems = scanned(data, step)
    assert [words in problem for problem in problems] == [True], problems


@pytest.mark.parametrize(
    ("fields", "words", "found"),
    [
        ({"uid": 1}, r"user b'0000000' of 00000000_00000000_0-0-0.json.gz", "b'0000001'"),
        ({"mtime": 1}, r"time b'00000000000' of 00000000_00000000_0-0-0.json.gz", "b'00000000001'"),
        ({"type": tarfile.SYMTYPE}, "type b'0' of 00000000_00000000_0-0-0.json.gz", "b'2'"),
        ({"uname": "u" * 30}, "user name b'' of 00000000_00000000_0-0-0.json.gz", repr(b"u" * 30)),
    ],
    ids=["user", "time", "type", "user name"],
)
def test_of_a_header_one_field_is_shown(fields: dict[str, object], words: str, found: str) -> None:
    scan = WEBDATASET.scan(U16, ROWS.shape[1])
    scan.take(0, tar_of(GOOD, **fields))
    [problem] = scan.problems(Expected(0, None))
    assert problem.expected == f"the header of a plain file without owner and time: {words}"
    assert problem.found == found


def test_bytes_that_fill_a_block_are_zeros() -> None:
    """They are no part of a member, and tar readers pass over them."""
    data = bytearray(TAR)
    with tarfile.open(fileobj=io.BytesIO(TAR)) as file:
        first = file.getmembers()[0]
    data[first.offset_data + first.size] = 1
    assert scanned(bytes(data), 512)[1] == [f"zeros behind {first.name}"]
