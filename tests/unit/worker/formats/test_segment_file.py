"""A segment gives back the blocks that were written, and any byte that is not as it was written is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenization_worker.formats.segment import MAGIC, SegmentLost, SegmentReader, SegmentWriter
from tokenization_worker.storage.local.store import LocalStore

DIGEST = "0123456789abcdef" * 2
U16 = np.dtype("<u2")


def write(store: LocalStore, *blocks: tuple[int, list[int]], drop_from: int | None = None) -> None:
    """A segment with a document of each block's tokens."""
    with store.upload("segment") as upload:
        writer = SegmentWriter(upload, 2)
        for number, (stream, tokens) in enumerate(blocks):
            lengths = np.array([len(tokens)], np.uint32)
            position, part = np.array([100 * number], np.int64), np.array([number], np.uint32)
            writer.append(stream, np.array(tokens, U16), lengths, position, part)
        if drop_from is not None:
            writer.drop_from(drop_from)
        writer.finish(DIGEST)
        upload.commit()


def reader(store: LocalStore, digest: str = DIGEST) -> SegmentReader:
    return SegmentReader(store, "segment", range_id=7, digest=digest, dtype=U16)


def tokens_of(store: LocalStore, stream: int, start: int, end: int) -> list[tuple[int, list[int]]]:
    return [(block.token_start, block.tokens.tolist()) for block in reader(store).blocks(stream, start, end)]


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 6, [(0, [1, 2]), (2, [5, 6, 7]), (5, [8])]),
        (1, 2, [(0, [1, 2])]),
        (2, 5, [(2, [5, 6, 7])]),
        (4, 6, [(2, [5, 6, 7]), (5, [8])]),
        (6, 9, []),
    ],
    ids=["all", "inside of one", "one", "two", "behind the end"],
)
def test_blocks_of_a_stream_that_hold_the_tokens_are_read(
    start: int, end: int, found: list[tuple[int, list[int]]], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]), (1, [3, 4]), (0, [5, 6, 7]), (0, [8]))
    assert tokens_of(store, 0, start, end) == found
    assert tokens_of(store, 1, 0, 2) == [(0, [3, 4])]


def test_documents_come_with_their_lengths_positions_and_slices(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]), (0, [5, 6, 7]))
    [_, block] = reader(store).blocks(0, 0, 5)
    assert (block.lengths.tolist(), block.positions.tolist(), block.slices.tolist()) == ([3], [100], [1])


def test_dropped_blocks_belong_to_no_stream(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]), (0, [9, 9]), (1, [9]), drop_from=1)
    assert tokens_of(store, 0, 0, 9) == [(0, [1, 2])]
    assert tokens_of(store, 1, 0, 9) == []


def test_a_flipped_bit_anywhere_is_a_lost_segment(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]), (0, [5, 6, 7]))
    file = tmp_path / "segment"
    content = file.read_bytes()
    assert content.endswith(MAGIC)
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(SegmentLost) as caught:
            tokens_of(store, 0, 0, 5)
        assert caught.value.range_id == 7


def test_a_cut_anywhere_is_a_lost_segment(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]), (0, [5, 6, 7]))
    file = tmp_path / "segment"
    content = file.read_bytes()
    for size in range(len(content)):
        file.write_bytes(content[:size])
        with pytest.raises(SegmentLost):
            tokens_of(store, 0, 0, 5)
    file.unlink()
    with pytest.raises(SegmentLost, match="does not exist"):
        reader(store)


def test_a_segment_of_another_receipt_is_lost(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, (0, [1, 2]))
    with pytest.raises(SegmentLost, match="does not match its receipt"):
        reader(store, "f" * 32)
