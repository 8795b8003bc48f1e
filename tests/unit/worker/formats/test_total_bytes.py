"""What a plan says of the size of shards: that of the files which another writer makes."""

from __future__ import annotations

import numpy as np
import pytest

from support.format_oracle import files_of
from support.oracle import encoding
from support.places import CHECKOUT
from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.registry import FORMATS

SHARDS = ([3, 1, 7], [100], [1, 1, 1, 1, 1])
"""Tokens of the documents in each."""


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
@pytest.mark.parametrize("format", [name for name, each in FORMATS.items() if not each.traits.needs_rows])
def test_the_size_of_all_files_is_that_of_what_is_written(format: str, dtype: str) -> None:
    written = [
        file for lengths in SHARDS for file in files_of(format, np.zeros(sum(lengths), np.dtype(dtype)), lengths)
    ]
    shape = ShardShape(sum(map(sum, SHARDS)), np.dtype(dtype))
    expected = FORMATS[format].total_bytes(shape, len(SHARDS), sum(map(len, SHARDS)))
    assert expected == sum(map(len, written))


def test_more_tokens_than_one_header_can_name_have_a_size() -> None:
    """The plan asks for all shards at once."""
    shape = ShardShape(10**13, np.dtype("<u4"))
    assert FORMATS["LlmC"].total_bytes(shape, 10**5, 10**9) == 4 * 10**13 + 1024 * 10**5


def test_the_size_of_compressed_rows_is_about_that_of_real_texts() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((CHECKOUT / "docs").glob("*.md"))]
    tokens = np.array([token for text in texts for token in encoding("gpt2").encode_ordinary(text)], "<u2")
    rows = tokens[: len(tokens) // 2049 * 2049].reshape(-1, 2049)
    places = [(0, 0, 0)] * len(rows)
    [tar] = files_of("WebDataset", rows.reshape(-1), [2049] * len(rows), places=places)
    found = FORMATS["WebDataset"].total_bytes(ShardShape(rows.size, rows.dtype, 2049), 1, len(rows))
    assert len(rows) > 30
    assert abs(found - len(tar)) < 0.3 * len(tar)
