"""What a plan says of the size of shards: that of the files which another writer makes."""

from __future__ import annotations

import numpy as np
import pytest

from support.format_oracle import files_of
from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.registry import FORMATS

SHARDS = ([3, 1, 7], [100], [1, 1, 1, 1, 1])
"""Tokens of the documents in each."""


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
@pytest.mark.parametrize("format", FORMATS)
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
