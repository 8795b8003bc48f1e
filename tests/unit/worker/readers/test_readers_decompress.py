"""Decompression: all frames and members, bounded blocks, and decoder errors told apart from the store's."""

from __future__ import annotations

import gzip
import io
import time

import pytest

from support.faults.hostile import named_gzip, skippable_frame
from tokenization_worker.readers import decompress
from tokenization_worker.readers.decompress import StoredBytes, read_blocks, zstd
from tokenization_worker.readers.document_batch import Compression, CorruptFileError, FileOutcome
from tokenization_worker.verification.decoders.members import GzipContent

CONTENT = b"".join(b"line %d\n" % n for n in range(200_000))


class ShortReads(io.BytesIO):
    """A stream that gives a few bytes at a time, as a network does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size if size and size > 0 else 700, 700))


class BrokenStore(io.BytesIO):
    """A stream whose store fails half-way."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 1000:
            raise ConnectionError("the store went away")
        return super().read(min(size or 500, 500))


PACKED = {
    Compression.NONE: CONTENT,
    Compression.GZIP: gzip.compress(CONTENT, 1),
    Compression.ZSTD: zstd.compress(CONTENT, 1),
}


@pytest.mark.parametrize("compression", PACKED, ids=str)
@pytest.mark.parametrize("stream", [io.BytesIO, ShortReads], ids=["whole reads", "short reads"])
def test_blocks_are_the_whole_content(compression: Compression, stream: type[io.BytesIO]) -> None:
    source = StoredBytes(stream(PACKED[compression]))
    head = source.peek(100)
    assert head == PACKED[compression][:100]
    blocks = list(read_blocks(source, compression))
    assert b"".join(blocks) == CONTENT
    assert all(blocks)
    assert source.taken == len(PACKED[compression])


@pytest.mark.parametrize("compression", PACKED, ids=str)
def test_errors_of_the_store_are_not_taken_for_damage(compression: Compression) -> None:
    with pytest.raises(ConnectionError):
        list(read_blocks(StoredBytes(BrokenStore(PACKED[compression])), compression))


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD], ids=str)
def test_a_file_that_expands_much_comes_in_bounded_blocks(compression: Compression) -> None:
    bomb = bytes(64 << 20)
    packed = gzip.compress(bomb, 1) if compression is Compression.GZIP else zstd.compress(bomb)
    sizes = [len(block) for block in read_blocks(StoredBytes(io.BytesIO(packed)), compression)]
    assert sum(sizes) == len(bomb)
    assert max(sizes) <= 2 * decompress.BLOCK_BYTES


def test_many_small_frames_are_joined_and_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompress, "READ_BYTES", 64 << 20)
    frame = zstd.compress(b"a small frame\n") + skippable_frame(b"note")
    count = 60_000
    started = time.process_time()
    blocks = list(read_blocks(StoredBytes(io.BytesIO(frame * count), read_bytes=64 << 20), Compression.ZSTD))
    assert time.process_time() - started < 10  # 1 s; half a minute where each frame copies the rest
    assert b"".join(blocks) == b"a small frame\n" * count
    assert len(blocks) < 5


@pytest.mark.parametrize("window_log", [27, 28, 31])
def test_windows_up_to_2_gib_are_declared_readable(window_log: int) -> None:
    frame = bytearray(zstd.compress(CONTENT[:1000]))
    descriptor = frame[4]
    single_segment = bool(descriptor & 0x20)
    assert single_segment  # replace the header by one with a window and no content size
    size_bytes = (1, 2, 4, 8)[descriptor >> 6]
    header = bytes([descriptor & 0x04, (window_log - 10) << 3])
    packed = bytes(frame[:4]) + header + bytes(frame[5 + size_bytes :])
    assert b"".join(read_blocks(StoredBytes(io.BytesIO(packed)), Compression.ZSTD)) == CONTENT[:1000]


@pytest.mark.parametrize("cut", [5, 100, 0.5, -9, -4, -1], ids=str)
@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD], ids=str)
def test_a_file_cut_anywhere_is_corrupt(compression: Compression, cut: float) -> None:
    packed = PACKED[compression]
    packed = packed[: int(len(packed) * cut)] if 0 < cut < 1 else packed[: int(cut)]
    with pytest.raises(CorruptFileError) as raised:
        list(read_blocks(StoredBytes(io.BytesIO(packed)), compression))
    assert raised.value.outcome is FileOutcome.CORRUPT_FILE
    assert raised.value.offset == len(packed)
    assert raised.value.detail.startswith(compression.value.lower())


def test_a_gzip_header_that_is_too_long_says_so() -> None:
    content = named_gzip(b"text", 1 << 20)
    with pytest.raises(CorruptFileError, match=r"name and comment, is longer than 524,288 bytes") as raised:
        list(read_blocks(StoredBytes(io.BytesIO(content)), Compression.GZIP))
    assert raised.value.outcome is FileOutcome.CORRUPT_FILE


@pytest.mark.parametrize("behind", [bytes(30 << 20), named_gzip(b"", 3) * 20_000], ids=["padding", "members"])
def test_verify_passes_over_what_is_behind_a_gzip_member(behind: bytes) -> None:
    """30 MiB of zero bytes took 4 s, one call for each of them."""
    started = time.process_time()
    content = GzipContent(io.BytesIO(gzip.compress(b"text") + behind))
    assert (content.read(100), content.read(100)) == (b"text", b"")
    assert time.process_time() - started < 1
