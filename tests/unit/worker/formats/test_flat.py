"""Files of a header and tokens: their bytes, and which other files are told apart by name, size and header."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenization_worker.formats.base import ShardShape, ShardUnreadable, StoredFile
from tokenization_worker.formats.flat import FlatFormat
from tokenization_worker.formats.llmc import LLMC
from tokenization_worker.formats.npy import NPY
from tokenization_worker.formats.raw import RAW
from tokenization_worker.sequences.parts import NO_PARTS
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.formats.base import Expected, ShardScan
from tokenization_worker.verification.formats.registry import DECODERS

U16, U32 = np.dtype("<u2"), np.dtype("<u4")


def bytes_of(flat: FlatFormat, tokens: np.ndarray) -> bytes:
    sink = io.BytesIO()
    writer = flat.begin(ShardShape(len(tokens), tokens.dtype), [sink])
    for start in range(0, len(tokens), 7):
        writer.write(tokens[start : start + 7], NO_PARTS)
    writer.finish(np.empty(0, np.uint32))
    return sink.getvalue()


def stored(folder: Path, content: bytes) -> StoredFile:
    (folder / "a.npy").write_bytes(content)
    return StoredFile(LocalStore(folder), "a.npy", len(content))


@pytest.mark.parametrize("dtype", [U16, U32])
@pytest.mark.parametrize("count", [1, 7, 20, 12_345])
def test_npy_is_what_numpy_saves(dtype: np.dtype, count: int) -> None:
    tokens = np.arange(count, dtype=dtype)
    sink = io.BytesIO()
    np.save(sink, tokens)
    assert bytes_of(NPY, tokens) == sink.getvalue()
    assert bytes_of(RAW, tokens) == tokens.tobytes()


def test_a_reader_gives_the_tokens_that_were_written(tmp_path: Path) -> None:
    tokens = np.arange(100, dtype=U16)
    reader = NPY.reader(ShardShape(100, U16), [stored(tmp_path, bytes_of(NPY, tokens))])
    assert np.array_equal(reader.open(), tokens)
    assert reader.read(3, 9).tolist() == [3, 4, 5, 6, 7, 8]
    assert not reader.open().flags.writeable


CORRUPT = {
    "one byte less": (lambda content: content[:-1], "has 327 bytes, expected 328"),
    "one byte more": (lambda content: content + b"x", "has 329 bytes, expected 328"),
    "another type": (lambda content: content.replace(b"<u2", b"<i2"), "another header"),
    "another number of tokens": (lambda content: content.replace(b"(100,)", b"(200,)"), "another header"),
    "an empty file": (lambda content: b"", "another header"),
}


@pytest.mark.parametrize(("change", "words"), CORRUPT.values(), ids=CORRUPT)
def test_a_file_that_is_not_its_shard_is_unreadable(
    change: Callable[[bytes], bytes], words: str, tmp_path: Path
) -> None:
    content = change(bytes_of(NPY, np.arange(100, dtype=U16)))
    with pytest.raises(ShardUnreadable) as caught:
        NPY.reader(ShardShape(100, U16), [stored(tmp_path, content)]).open()
    assert words in caught.value.what


def test_an_error_shows_the_beginning_of_a_long_header(tmp_path: Path) -> None:
    content = b"theirs" + bytes(1018 + 200)
    with pytest.raises(ShardUnreadable) as caught:
        LLMC.reader(ShardShape(100, U16), [stored(tmp_path, content)]).check()
    assert caught.value.what.endswith(f": {content[:128]!r}")
    [problem] = _scanned(content).problems(Expected(100, None))
    assert problem.found == repr(content[:128])


def _scanned(content: bytes) -> ShardScan:
    scan = DECODERS["LlmC"].scan(U16)
    scan.take(0, content)
    return scan


def test_a_file_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    reader = NPY.reader(ShardShape(100, U16), [StoredFile(LocalStore(tmp_path), "a.npy", 328)])
    for read in (reader.check, reader.open, lambda: reader.read(0, 1)):
        with pytest.raises(ShardUnreadable) as caught:
            read()
        assert caught.value.what == "is missing"


UNFINISHED = ShardShape(100, U16)
NOT_OURS = {
    "no tokens": (bytes_of(NPY, np.arange(0, dtype=U16)), "no unfinished shard of this run has 128 bytes"),
    "a token more": (bytes_of(NPY, np.arange(101, dtype=U16)), "no unfinished shard of this run has 330 bytes"),
    "a token less": (bytes_of(NPY, np.arange(99, dtype=U16)), "no unfinished shard of this run has 326 bytes"),
    "half a token": (bytes_of(NPY, np.arange(100, dtype=U16)) + b"x", "no unfinished shard of this run has 329 bytes"),
    "shorter than its header": (b"theirs", "no unfinished shard of this run has 6 bytes"),
    "another type": (
        bytes_of(NPY, np.arange(50, dtype=U32)),
        "it does not begin with the header of a shard of this run",
    ),
    "another header": (b"x" * 328, "it does not begin with the header of a shard of this run"),
}


@pytest.mark.parametrize(("content", "words"), NOT_OURS.values(), ids=NOT_OURS)
def test_a_foreign_file_is_known_by_its_size_and_header(content: bytes, words: str, tmp_path: Path) -> None:
    assert NPY.why_foreign(0, stored(tmp_path, content), UNFINISHED) == words


def test_a_shard_that_no_receipt_names_may_be_ours(tmp_path: Path) -> None:
    assert NPY.why_foreign(0, stored(tmp_path, bytes_of(NPY, np.arange(100, dtype=U16))), UNFINISHED) is None
