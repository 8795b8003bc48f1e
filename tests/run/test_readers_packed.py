"""Slices of gzip and zstd files: any cut holds the records of the whole file, whoever reads them in which order."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers import decompress
from tokenization_worker.readers import resumable_decoder as content_module
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.detection.sizes import estimate_content_bytes
from tokenization_worker.readers.document_batch import (
    Compression,
    CorruptFileError,
    FileKind,
    FileOutcome,
    FileSlice,
    ReadOptions,
)
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.resumable_decoder import Content, SetAside

pytestmark = pytest.mark.slow

BOM = b"\xef\xbb\xbf"
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"

Pack = Callable[[bytes], bytes]


def halves(content: bytes) -> tuple[bytes, bytes]:
    return content[: len(content) // 2], content[len(content) // 2 :]


def piped_zstd(content: bytes) -> bytes:
    """One frame that does not say how much it holds."""
    compressor = zstd.ZstdCompressor()
    return b"".join([compressor.compress(part) for part in halves(content)]) + compressor.flush()


PACKS: dict[str, tuple[Compression, Pack]] = {
    "gzip": (Compression.GZIP, gzip.compress),
    "gzip members": (Compression.GZIP, lambda data: b"".join(map(gzip.compress, halves(data)))),
    "gzip, padded": (Compression.GZIP, lambda data: gzip.compress(data) + bytes(100)),
    "zstd": (Compression.ZSTD, zstd.compress),
    "zstd, size not known": (Compression.ZSTD, piped_zstd),
    "zstd frames": (Compression.ZSTD, lambda data: SKIPPABLE.join(map(zstd.compress, halves(data)))),
    "zstd, skippable frame first": (Compression.ZSTD, lambda data: SKIPPABLE + zstd.compress(data) + SKIPPABLE),
}
packs = pytest.mark.parametrize("pack", PACKS, ids=str)

TEXT = ReadOptions(SourceFormat.TEXT, "text", b"<>", 1 << 20)
JSONL = ReadOptions(SourceFormat.JSONL, "text", None, 1 << 20)


class Reader:
    """Reads slices of one packed file, and notes how many stored bytes that takes."""

    def __init__(self, pack: str, stored: bytes, options: ReadOptions, version: str = "v") -> None:
        self.stored = stored
        self.taken = 0
        self._kind = FileKind(options.format, PACKS[pack][0])
        self._options = options
        self._version = version

    def slice(self, start: int, end: int = -1) -> FileSlice:
        return FileSlice(0, "f", len(self.stored), self._version, start, end, self._kind)

    def read(self, start: int, end: int, aside: SetAside | None = None) -> list[tuple[int, str | None, int]]:
        """(position, text or None, records before it in the slice) in file order."""
        source = self.slice(start, end)
        found: list[tuple[int, str | None, int]] = []
        self.records = self.source_bytes = 0
        for batch in read_documents(source, self._options, self._open, aside):
            found += [(place, text, -1) for place, text in zip(batch.positions.tolist(), batch.texts, strict=True)]
            found += [(item.position, None, item.record) for item in batch.rejected]
            self.records += batch.records
            self.source_bytes += batch.source_bytes
        return sorted(found)

    def _open(self, uri: str) -> io.BytesIO:
        reader = self

        class Counting(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(size)
                reader.taken += len(data)
                return data

        return Counting(self.stored)


def parts_of(content: bytes, separator: bytes) -> list[tuple[int, str]]:
    """(offset, text) of every piece, the obvious way."""
    found, offset = [], 0
    pieces = content.split(separator)
    for piece in pieces if pieces[-1] else pieces[:-1]:
        found.append((offset, piece.removeprefix(b"" if offset else BOM).decode()))
        offset += len(piece) + len(separator)
    return found


@packs
@given(
    texts=st.lists(st.sampled_from(["", "one", "two\n", "日本", "<", ">", "x" * 70]), max_size=25),
    bom=st.booleans(),
    block=st.integers(1, 50),
    kept=st.sampled_from([10, 60, 1 << 20]),
    data=st.data(),
)
@settings(max_examples=80)
def test_any_cut_read_by_any_workers_in_any_order_gives_the_whole_file(
    pack: str, texts: list[str], bom: bool, block: int, kept: int, data: st.DataObject
) -> None:
    content = (BOM if bom else b"") + "<>".join(texts).encode()
    if content == BOM:
        content = b""
    borders = sorted({0, *data.draw(st.lists(st.integers(0, 2 * len(content) + 3), max_size=6))})
    slices = list(zip(borders, [*borders[1:], -1], strict=True))
    workers = [SetAside(), SetAside()]
    found: dict[int, list[tuple[int, str | None, int]]] = {}
    source_bytes = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "BLOCK_BYTES", block)
        patch.setattr(content_module, "KEPT_BYTES", kept)
        reader = Reader(pack, PACKS[pack][1](content), TEXT)
        for start, end in data.draw(st.permutations(slices)):
            found[start] = reader.read(start, end, workers[data.draw(st.integers(0, 1))])
            source_bytes += reader.source_bytes
    assert [item[:2] for start in borders for item in found[start]] == parts_of(content, b"<>")
    assert source_bytes == len(content)


LINES = [b'{"text": "one"}', b'{"text": null}', b"", b" \t\r", b"not json", b'{"text": "' + b"long " * 30 + b'"}']


@packs
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=30),
    step=st.integers(1, 200),
    block=st.integers(1, 64),
    is_set_aside=st.booleans(),
)
@settings(max_examples=60)
def test_jsonl_slices_keep_positions_and_line_numbers(
    pack: str, lines: list[bytes], step: int, block: int, is_set_aside: bool
) -> None:
    content = b"\n".join(lines)
    aside = SetAside() if is_set_aside else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "BLOCK_BYTES", block)
        reader = Reader(pack, PACKS[pack][1](content), JSONL)
        whole = reader.read(0, -1)
        records = reader.records
        found, before = [], 0
        for start in range(0, len(content) + 1, step):
            is_last = start + step > len(content)
            part = reader.read(start, -1 if is_last else start + step, aside)
            found += [(place, text, number + before if number >= 0 else -1) for place, text, number in part]
            before += reader.records
    assert (found, before) == (whole, records)


def documents(count: int) -> bytes:
    return b"".join(b'{"text": "%s"}\n' % os.urandom(300).hex().encode() for _ in range(count))


@packs
def test_slices_read_one_after_the_other_inflate_a_file_once(pack: str) -> None:
    content = documents(12_000)
    borders = [len(content) * i // 8 for i in range(8)]
    reader = Reader(pack, PACKS[pack][1](content), JSONL)
    aside = SetAside()
    found = [reader.read(start, end, aside) for start, end in zip(borders, [*borders[1:], -1], strict=True)]
    assert reader.taken == len(reader.stored)
    assert [item for part in found for item in part] == reader.read(0, -1)

    reader.taken = 0
    reader.read(borders[5], borders[6], aside)
    assert reader.taken < len(reader.stored), "a slice takes what it needs and no more"


def test_what_is_kept_for_the_next_slice_is_bounded() -> None:
    stored = zstd.compress(bytes(40 << 20))
    content = Content(io.BytesIO(stored), Compression.ZSTD)
    blocks = content.read(0, 2 << 20)
    for _ in range(8):
        next(blocks)
    assert content.reaches(2 << 20)
    assert not content.reaches(0), "what nobody needs again is let go"
    for _ in blocks:
        pass
    assert not content.reaches(2 << 20), "a record of many blocks is not kept for the next slice"


@packs
def test_slices_behind_the_end_of_the_content_are_empty(pack: str) -> None:
    content = documents(50)
    reader = Reader(pack, PACKS[pack][1](content), JSONL)
    for aside in (SetAside(), None):
        assert len(reader.read(0, 2 * len(content), aside)) == 50
        assert reader.read(2 * len(content), 3 * len(content), aside) == []
        assert reader.read(3 * len(content), -1, aside) == []


def test_what_is_set_aside_serves_the_same_version_of_the_same_file_only() -> None:
    one, other = zstd.compress(b"one<>two<>three"), zstd.compress(b"1111<>2222<>3333")
    aside = SetAside()
    Reader("zstd", one, TEXT, "v1").read(0, 5, aside)
    assert Reader("zstd", other, TEXT, "v2").read(5, -1, aside) == [(6, "2222", -1), (12, "3333", -1)]
    Reader("zstd", one, TEXT, "v1").read(0, 5, aside)
    plain = FileSlice(0, "g", 3, "v", 0, -1, FileKind(SourceFormat.TEXT, Compression.NONE))
    list(read_documents(plain, TEXT, lambda _: io.BytesIO(b"abc"), aside))
    assert aside.take(FileSlice(0, "f", len(one), "v1"), 5) is None, "another file's slice lets the decoder go"


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short by a byte": lambda stored: stored[:-1],
    "cut in the middle": lambda stored: stored[: len(stored) // 2],
    "wrong checksum": lambda stored: stored[:-2] + bytes([stored[-2] ^ 1]) + stored[-1:],
    "garbage after the end": lambda stored: stored + b"garbage, and more of it",
}
CHECKED = {
    "gzip": gzip.compress,
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("is_set_aside", [True, False], ids=["one worker", "many workers"])
@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("pack", CHECKED, ids=str)
def test_damage_is_found_by_the_last_slice_whoever_else_has_seen_it(pack: str, damage: str, is_set_aside: bool) -> None:
    content = documents(12_000)
    reader = Reader(pack, DAMAGE[damage](CHECKED[pack](content)), JSONL)
    aside = SetAside() if is_set_aside else None
    borders = [len(content) * i // 6 for i in range(6)]
    outcomes = []
    for start, end in zip(borders, [*borders[1:], -1], strict=True):
        try:
            reader.read(start, end, aside)
            outcomes.append(FileOutcome.READ)
        except CorruptFileError as found:
            outcomes.append(found.outcome)
    assert set(outcomes[:2]) == {FileOutcome.READ}
    assert outcomes[-1] is FileOutcome.CORRUPT_FILE
    if damage != "cut in the middle":
        assert set(outcomes[:-1]) == {FileOutcome.READ}


@pytest.mark.parametrize("pack", CHECKED, ids=str)
def test_a_wrong_encoding_is_what_every_slice_says_also_of_a_file_that_is_cut_short(pack: str) -> None:
    """Which slice is read first does not decide the outcome."""
    content = b"\xff\xfe" + os.urandom(1 << 20).hex().encode("utf-16-le")
    stored = PACKS[pack][1](content)[:-1]
    for start, end in ((0, 3 << 20), (3 << 20, -1)):
        with pytest.raises(CorruptFileError) as found:
            Reader(pack, stored, JSONL).read(start, end)
        assert found.value.outcome is FileOutcome.WRONG_ENCODING


@packs
def test_the_size_of_the_content_is_estimated_from_the_head(pack: str) -> None:
    compression, compress = PACKS[pack]
    content = documents(20_000)
    stored = compress(content)
    found = estimate_content_bytes("f", len(stored), compression, lambda _: io.BytesIO(stored))
    assert 0.9 * len(content) <= found <= 1.7 * len(content)
    if pack in ("gzip", "zstd"):
        assert found == len(content), "what the file says of itself is exact"


@pytest.mark.parametrize(("count", "zeros"), [(0, 200 << 20), (2000, 64 << 20)], ids=["zeros", "zeros later"])
@pytest.mark.parametrize("pack", ["gzip", "zstd, size not known"], ids=str)
def test_a_size_costs_little_and_ends_whatever_the_file_expands_to(pack: str, count: int, zeros: int) -> None:
    compression, compress = PACKS[pack]
    reader = Reader(pack, compress(documents(count) + bytes(zeros)), TEXT)
    found = estimate_content_bytes("f", len(reader.stored), compression, reader._open)
    assert found > 0
    assert reader.taken <= 2 * decompress.READ_BYTES


@pytest.mark.parametrize("stored", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd" + b"\xff" * 100], ids=repr)
def test_a_damaged_head_has_no_size(stored: bytes) -> None:
    compression = Compression.GZIP if stored.startswith(b"\x1f") else Compression.ZSTD
    assert estimate_content_bytes("f", len(stored), compression, lambda _: io.BytesIO(stored)) == 0


@pytest.mark.parametrize("log", [20, 27, 28])
def test_a_decoder_with_a_huge_window_is_not_set_aside(log: int) -> None:
    """Nobody may ask for its next slice for hours, and the worker has other work meanwhile."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
    packed = compressor.compress(b"1111\n" * 2000) + compressor.flush()  # of unknown size: the window is as asked for
    aside = SetAside()
    reader = Reader("zstd", packed, TEXT, "v1")
    assert reader.read(0, 5000, aside)
    kept = aside.take(reader.slice(5000), 5000)
    assert (kept is not None) == (log <= 27)


def test_a_decoder_that_is_past_the_slice_is_let_go() -> None:
    aside = SetAside()
    reader = Reader("zstd", zstd.compress(b"1111\n" * 500_000), TEXT, "v1")
    assert reader.read(0, 2_000_000, aside)
    assert aside.take(reader.slice(0), 0) is None
    assert aside.take(reader.slice(2_000_000), 2_000_000) is None
