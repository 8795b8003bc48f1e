"""Text: a file is a document, or its pieces are."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.batches import MAX_REJECTED, MAX_TEXTS
from tokenization_worker.readers.document_batch import FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents


def read(content: bytes, separator: str | None, max_bytes: int = 1000) -> tuple[list, list, int]:
    """[(position, text)], [(position, record, reason)], records."""
    options = ReadOptions(SourceFormat.TEXT, "text", separator.encode() if separator else None, max_bytes)
    texts, rejected, records = [], [], 0
    for batch in read_documents(FileSlice(0, "f", len(content), ""), options, lambda _: io.BytesIO(content)):
        texts += zip(batch.positions.tolist(), batch.texts, strict=True)
        rejected += [(item.position, item.record, item.reason) for item in batch.rejected]
        records += batch.records
    return texts, rejected, records


PIECES = {
    "whole file": (b" a\r\nb \n\n", None, [(0, " a\r\nb \n\n")]),
    "0 bytes": (b"", None, []),
    "mark": (b"\xef\xbb\xbfa", None, [(0, "a")]),
    "mark only": (b"\xef\xbb\xbf", None, []),
    "blank file": (b"\n", None, [(0, "\n")]),
    "separator ends a document": (b"a<>b<>", "<>", [(0, "a"), (3, "b")]),
    "last piece without separator": (b"a<>b", "<>", [(0, "a"), (3, "b")]),
    "empty pieces": (b"<>a<><>", "<>", [(0, ""), (2, "a"), (5, "")]),
    "whitespace is kept": (b"a\n<>\nb <>\n", "<>", [(0, "a\n"), (4, "\nb "), (9, "\n")]),
    "only a separator": (b"<>", "<>", [(0, "")]),
    "mark before a separator": (b"\xef\xbb\xbf<>a", "<>", [(0, ""), (5, "a")]),
    "separator that overlaps itself": (b"xaaay", "aa", [(0, "x"), (3, "ay")]),
    "0 bytes with a separator": (b"", "<>", []),
}


@pytest.mark.parametrize(("content", "separator", "texts"), PIECES.values(), ids=PIECES.keys())
def test_pieces_of_text(content: bytes, separator: str | None, texts: list) -> None:
    assert read(content, separator) == (texts, [], len(texts))


def test_a_piece_that_is_not_utf8_or_too_large_costs_only_itself() -> None:
    content = b"good<>bad \xff<>" + b"x" * 11 + b"<>" + "é".encode() * 5 + b"<>"
    assert read(content, "<>", 10) == (
        [(0, "good"), (26, "é" * 5)],
        [(6, 1, "InvalidUtf8"), (13, 2, "DocumentTooLarge")],
        4,
    )


def test_a_batch_of_very_short_bad_pieces_is_bounded() -> None:
    content = b"\xff<>" * 30_000 + b"good<>" + b"\xff<>" * 30_000
    options = ReadOptions(SourceFormat.TEXT, "text", b"<>", 1000)
    found = list(read_documents(FileSlice(0, "f", len(content), ""), options, lambda _: io.BytesIO(content)))
    assert max(len(batch.rejected) for batch in found) <= MAX_REJECTED
    assert sum(batch.source_bytes for batch in found) == len(content)
    texts, rejected, records = read(content, "<>")
    assert (texts, records) == ([(90_000, "good")], 60_001)
    assert [(position, record) for position, record, _ in rejected] == [
        (3 * n + 3 * (n > 30_000), n) for n in range(60_001) if n != 30_000
    ]


@pytest.mark.parametrize("piece", [b"", b"a"], ids=["empty", "one byte"])
def test_a_batch_of_very_short_pieces_is_bounded(piece: bytes) -> None:
    content = (piece + b"<>") * 200_000
    options = ReadOptions(SourceFormat.TEXT, "text", b"<>", 1000)
    found = list(read_documents(FileSlice(0, "f", len(content), ""), options, lambda _: io.BytesIO(content)))
    assert max(len(batch.texts) for batch in found) <= MAX_TEXTS
    assert sum(batch.source_bytes for batch in found) == len(content)
    positions = np.concatenate([batch.positions for batch in found])
    assert positions.tolist() == [number * len(piece + b"<>") for number in range(200_000)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["no mark", "mark"])
@pytest.mark.parametrize("separator", [None, "<>"])
def test_the_limit_counts_neither_mark_nor_separator(mark: bytes, separator: str | None) -> None:
    end = (separator or "").encode()
    assert read(mark + b"x" * 50 + end, separator, 50) == ([(0, "x" * 50)], [], 1)
    assert read(mark + b"x" * 51 + end, separator, 50) == ([], [(0, 0, "DocumentTooLarge")], 1)
