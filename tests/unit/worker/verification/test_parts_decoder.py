"""`verify` reads files of parts by itself: numpy's own spelling of a header and nothing else."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.parts import HEADER_BYTES, PART, parse_parts


def saved(count: int) -> bytes:
    file = io.BytesIO()
    parts = np.zeros(count, dtype=PART)
    parts["row"], parts["start"] = np.arange(count) // 3, np.arange(count) % 3 * 2
    np.save(file, parts)
    return file.getvalue()


@pytest.mark.parametrize("count", [1, 9, 12_345])
def test_parts_are_those_that_numpy_saved(count: int) -> None:
    data = saved(count)
    assert len(data) == HEADER_BYTES + 28 * count
    parts = parse_parts(data, 100)
    assert parts.tokens.tolist() == [number // 3 * 100 + number % 3 * 2 for number in range(count)]
    assert parts.stored.tobytes() == data[HEADER_BYTES:]


def test_every_bit_of_the_header_counts_and_none_is_a_traceback() -> None:
    data = saved(300)
    for bit in range(8 * HEADER_BYTES):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NoDocuments):
            parse_parts(bytes(flipped), 100)


@pytest.mark.parametrize("data", [b"", saved(300)[:100], saved(300)[:-1], saved(300) + b"x"])
def test_a_file_that_is_cut_or_goes_on_is_refused(data: bytes) -> None:
    with pytest.raises(NoDocuments):
        parse_parts(data, 100)
