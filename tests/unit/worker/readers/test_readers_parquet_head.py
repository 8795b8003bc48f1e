"""Heads of Parquet files: their documents, and the share of the file that these stand for."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenization_worker.readers.parquet.reader import ParquetHead, read_parquet_head

TEXT = "a text of forty bytes, again and again. "


def written(*groups: list[str | None]) -> bytes:
    """A row group of each list."""
    sink = io.BytesIO()
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(sink, schema) as writer:
        for texts in groups:
            writer.write_table(pa.table({"text": texts}, schema=schema), row_group_size=max(1, len(texts)))
    return sink.getvalue()


def head_of(content: bytes, max_bytes: int = 1 << 20) -> ParquetHead:
    return read_parquet_head(io.BytesIO(content), len(content), "text", 1 << 20, max_bytes)


def foreseen(content: bytes, max_bytes: int = 1 << 20) -> float:
    """The bytes of text in the whole file, as its head tells."""
    head = head_of(content, max_bytes)
    assert head.batch is not None
    return head.batch.source_bytes * len(content) / head.stored_bytes


CASES = {
    "repeated": ([[TEXT * 100] * 5000], 1 << 16),
    "growing groups": ([[TEXT] * 10, [TEXT] * 5000], 1 << 10),
    "three rows a group": ([[TEXT] * 3] * 50, 1 << 20),
    "nothing in the first groups": ([[], [], [TEXT] * 200], 1 << 20),
}


@pytest.mark.parametrize(("groups", "max_bytes"), CASES.values(), ids=CASES.keys())
def test_the_rows_tell_how_much_text_there_is(groups: list[list[str | None]], max_bytes: int) -> None:
    text_bytes = sum(len(text or "") for texts in groups for text in texts)
    assert foreseen(written(*groups), max_bytes) == pytest.approx(text_bytes)


def kinds() -> Iterator[tuple[str, list[list[str | None]], bool]]:
    yield "no group", [], True
    yield "no row", [[], []], True
    yield "all rows", [[TEXT, None, TEXT]], True
    yield "another group", [[TEXT] * 20, [TEXT]], False


@pytest.mark.parametrize(("groups", "is_whole"), [kind[1:] for kind in kinds()], ids=[kind[0] for kind in kinds()])
def test_a_head_knows_whether_it_is_all(groups: list[list[str | None]], is_whole: bool) -> None:
    assert head_of(written(*groups)).is_whole == is_whole
