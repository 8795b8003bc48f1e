"""Decompression: all frames and members, bounded blocks, and decoder errors told apart from the store's."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from support.faults.hostile import named_gzip, skippable_frame, with_dictionary
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


class CountingDecoder:
    """A decoder, and the bytes that it and its like were given: what they do not use they copy."""

    given = 0

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def decompress(self, data: bytes | memoryview, size: int) -> bytes:
        CountingDecoder.given += len(data)
        return self._decoder.decompress(data, size)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[CountingDecoder]:
    """Counts for all decoders from now on."""
    new_zstd, new_gzip = zstd.ZstdDecompressor, zlib.decompressobj
    monkeypatch.setattr(CountingDecoder, "given", 0)
    monkeypatch.setattr(zstd, "ZstdDecompressor", lambda **how: CountingDecoder(new_zstd(**how)))
    monkeypatch.setattr(zlib, "decompressobj", lambda **how: CountingDecoder(new_gzip(**how)))
    return CountingDecoder


def count_calls(work: Callable[[], object]) -> int:
    """The calls that some work makes, of functions in Python and in C."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_many_small_frames_are_joined_and_read_in_linear_time(
    counted: type[CountingDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a minute where each frame copies the rest."""
    viewed: list[int] = []

    def view(data: bytes | memoryview) -> memoryview:
        viewed.append(len(data))
        return memoryview(data)

    monkeypatch.setattr(decompress, "memoryview", view, raising=False)
    monkeypatch.setattr(decompress, "READ_BYTES", 64 << 20)
    count = 60_000
    frames = [zstd.compress(b"a small frame %d\n" % (n % 6000)) + skippable_frame(b"note") for n in range(6000)]
    stored = b"".join(frames) * (count // 6000)
    blocks: list[bytes] = []
    source = StoredBytes(io.BytesIO(stored), read_bytes=64 << 20)
    calls = count_calls(lambda: blocks.extend(read_blocks(source, Compression.ZSTD)))
    assert calls < 60 * count
    assert counted.given <= len(stored)
    assert sum(viewed) == len(stored)
    assert b"".join(blocks) == b"".join(b"a small frame %d\n" % (n % 6000) for n in range(count))
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


@pytest.mark.parametrize(
    ("behind", "most_calls", "most_given"),
    [(bytes(30 << 20), 1000, 16 << 10), (named_gzip(b"", 3) * 20_000, 20_000 * 100, 20_001 * (16 << 10))],
    ids=["padding", "members"],
)
def test_verify_passes_over_what_is_behind_a_gzip_member(
    behind: bytes, most_calls: int, most_given: int, counted: type[CountingDecoder]
) -> None:
    """30 MiB of zero bytes took 4 s, one call for each of them; a decoder copies what it is given and does not use."""
    found: list[bytes] = []
    content = GzipContent(io.BytesIO(gzip.compress(b"text") + behind))
    calls = count_calls(lambda: found.extend([content.read(100), content.read(100)]))
    assert found == [b"text", b""]
    assert calls < most_calls
    assert 0 < counted.given <= most_given


@pytest.mark.parametrize("before", [b"", CONTENT[:1000]], ids=["first frame", "later frame"])
def test_a_frame_that_needs_a_dictionary_says_how_to_decompress_the_file(before: bytes) -> None:
    packed = (zstd.compress(before) if before else b"") + with_dictionary(b"some words")
    with pytest.raises(CorruptFileError) as raised:
        list(read_blocks(StoredBytes(io.BytesIO(packed), uri="gs://b/my a.jsonl.zst"), Compression.ZSTD))
    assert raised.value.outcome is FileOutcome.CORRUPT_FILE
    number = zstd.get_frame_info(packed[packed.rindex(b"\x28\xb5\x2f\xfd") :]).dictionary_id
    assert f"dictionary {number}," in raised.value.detail
    assert "download the file; then: zstd -d -D DICTIONARY 'my a.jsonl.zst' -o 'plain-my a.jsonl'" in str(raised.value)
