"""Shows rows of a dataset: the pieces of documents in each, where they come from, and padding. Needs no source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenization_worker.api.data import Delimiters
from tokenization_worker.dataset.dataset import Dataset, open_dataset
from tokenization_worker.errors import SpecError
from tokenization_worker.formats.base import TokenArray
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.recorded import recorded_spec


@dataclass(frozen=True, slots=True)
class ShownPart:
    """The piece of one document in a row: tokens [start, end) of the row.

    `offset` tokens of the document stand in rows before. `uri` is its source file and `position` its record there: a
    byte offset of the decompressed file, or a row. `text` leaves delimiters out; where the row cuts a character, its
    bytes are U+FFFD.
    """

    start: int
    end: int
    offset: int
    uri: str
    position: int
    text: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row: its tokens u16 or u32[length], its parts, and how many tokens at its end are padding."""

    split: str
    row: int
    tokens: TokenArray
    parts: tuple[ShownPart, ...]
    padding: int


def show_rows(uri: str | os.PathLike[str], split: str, row: int, count: int = 1) -> Iterator[ShownRow]:
    """`count` rows of a split, from `row` on; fewer at its end.

    Raises `SpecError` where there is no such dataset, split or row, or its tokenizer cannot be loaded.
    """
    dataset = open_dataset(uri)
    view = dataset[split]
    if dataset.row_length is None:
        raise SpecError(
            "RowUnknown",
            f"split {split!r} of {dataset.uri} has no rows: its tokens are one run",
            next_step="show its documents instead, without --row; a job with output.sequence makes rows",
        )
    size = len(view.rows)
    if not 0 <= row < size:
        message = f"split {split!r} of {dataset.uri} has no row {row:,}"
        raise SpecError("RowUnknown", message, next_step=f"give a number from 0 to {size - 1:,}")
    return _show_each(dataset, split, range(row, min(row + count, size)))


def _show_each(dataset: Dataset, split: str, numbers: range) -> Iterator[ShownRow]:
    rows = dataset[split].rows
    tokenizer = load_tokenizer(recorded_spec(dataset.index))
    delimiters = Delimiters.from_json(dataset.index["data"]["tokenizer"]["delimiter"]).ids
    for number in numbers:
        tokens = rows[number]
        parts = []
        for part in rows.parts(number):
            start, end = int(part["start"]), int(part["start"]) + int(part["length"])
            own = tokens[start:end]
            text = tokenizer.decode(own[~np.isin(own, delimiters)].tolist())
            uri = dataset.source_uri(int(part["file"]))
            parts.append(ShownPart(start, end, int(part["offset"]), uri, int(part["position"]), text))
        yield ShownRow(split, number, tokens, tuple(parts), rows.length - parts[-1].end)
