"""Which files with the name of an `.idx` may be of a shard of the run: its size and its header decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.format_oracle import files_of
from tokenization_worker.formats.base import ShardShape, StoredFile
from tokenization_worker.formats.megatron import MEGATRON
from tokenization_worker.storage.local.store import LocalStore

U16, U32 = np.dtype("<u2"), np.dtype("<u4")
LARGEST = ShardShape(100, U16)


def why_foreign(folder: Path, content: bytes) -> str | None:
    (folder / "a.idx").write_bytes(content)
    return MEGATRON.why_foreign(1, StoredFile(LocalStore(folder), "a.idx", len(content)), LARGEST)


def index_of(entries: int, dtype: np.dtype = U16) -> bytes:
    """Of a shard of `entries` documents of one token each."""
    return files_of("Megatron", np.zeros(entries, dtype), [1] * entries)[1]


@pytest.mark.parametrize("entries", [1, 99, 100])
def test_an_index_that_no_receipt_names_may_be_ours(entries: int, tmp_path: Path) -> None:
    assert why_foreign(tmp_path, index_of(entries)) is None


NOT_OURS = {
    "no entry": (index_of(0), "no .idx of a shard of this run has 42 bytes"),
    "more entries than a full shard has tokens": (index_of(101), "no .idx of a shard of this run has 2,062 bytes"),
    "half an entry": (index_of(5) + bytes(10), "no .idx of a shard of this run has 152 bytes"),
    "shorter than its header": (index_of(5)[:18], "no .idx of a shard of this run has 18 bytes"),
    "another type": (index_of(5, U32), "it does not begin as the .idx of a shard of this run does"),
    "documents of several entries": (
        index_of(5)[:26] + b"\x03" + index_of(5)[27:],
        "it does not begin as the .idx of a shard of this run does",
    ),
}


@pytest.mark.parametrize(("content", "words"), NOT_OURS.values(), ids=NOT_OURS)
def test_a_foreign_index_is_known_by_its_size_and_header(content: bytes, words: str, tmp_path: Path) -> None:
    assert why_foreign(tmp_path, content) == words
