"""Rows a second time, one token after the other: what each shard's rows and parts must be. Shares nothing with the
worker; written from the reference of `output.sequence`. Everything is held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple

from support.shuffle_oracle import key


class Document(NamedTuple):
    """A document of the source: its file, the position of its record, its text and its tokens with delimiters."""

    file: int
    position: int
    text: str
    tokens: list[int]


class Part(NamedTuple):
    """One entry of the file of parts, in the order of its fields."""

    position: int
    file: int
    row: int
    start: int
    length: int
    offset: int


class RowShard(NamedTuple):
    """A shard: its rows, and their parts."""

    rows: list[list[int]]
    parts: list[Part]


def rows_of(
    documents: Sequence[Document], *, length: int, by_file: bool, pad: int, cut_early: int = 0
) -> Iterator[list[tuple[int, ...]]]:
    """Rows of (token, file, position, offset); padding is (pad,). `cut_early`: so many tokens at the end of the first
    row are padding, which no product does."""
    row: list[tuple[int, ...]] = []
    for number, document in enumerate(documents):
        if by_file and number and document.file != documents[number - 1].file and row:
            yield row + [(pad,)] * (length - len(row))
            row = []
        for offset, token in enumerate(document.tokens):
            row.append((token, document.file, document.position, offset))
            if len(row) == length - cut_early:
                row += [(pad,)] * cut_early
                cut_early = 0
            if len(row) == length:
                yield row
                row = []
    if row:
        yield row + [(pad,)] * (length - len(row))


def parts_of(rows: Sequence[Sequence[tuple[int, ...]]]) -> list[Part]:
    """The stretches of one document in each row."""
    found: list[Part] = []
    for number, row in enumerate(rows):
        before: tuple[int, ...] | None = None
        for start, (_, *place) in enumerate(row):
            document = tuple(place[:2])
            if not place:
                continue
            if document == before:
                found[-1] = found[-1]._replace(length=found[-1].length + 1)
            else:
                found.append(Part(place[1], place[0], number, start, 1, place[2]))
            before = document
    return found


def places_of(shard: RowShard) -> list[tuple[int, int, int]]:
    """File, position and offset of the first token of each row; a row without parts has none."""
    firsts = {part.row: part for part in reversed(shard.parts)}
    return [
        (part.file, part.position, part.offset) if (part := firsts.get(row)) is not None else (0, 0, 0)
        for row in range(len(shard.rows))
    ]


def shards_of(
    documents: Sequence[Document],
    *,
    length: int,
    by_file: bool,
    pad: int,
    shard_rows: int,
    seed: int | None = None,
    cut_early: int = 0,
) -> list[RowShard]:
    """The shards of one stream; with `seed` its rows are shuffled. `cut_early`: as for `rows_of`."""
    rows = list(rows_of(documents, length=length, by_file=by_file, pad=pad, cut_early=cut_early))
    if seed is not None:
        rows.sort(key=lambda row: key(seed, *row[0][1:]))
    cut = [rows[at : at + shard_rows] for at in range(0, len(rows), shard_rows)]
    return [RowShard([[token for token, *_ in row] for row in shard], parts_of(shard)) for shard in cut]


def splits_of(
    documents: Sequence[Document],
    make: Callable[[Sequence[Document]], list[RowShard]],
    *,
    leading: int = 0,
    share: Fraction | None = None,
) -> dict[str, list[RowShard]]:
    """`test` and `train`: the leading shards of all, or a share of the documents by their texts' hashes."""
    if share is None:
        shards = make(documents)
        return {"test": shards[:leading], "train": shards[leading:]}
    hashes = [int.from_bytes(blake2b(each.text.encode(), digest_size=8).digest(), "big") for each in documents]
    is_test = [number < share * 2**64 // 1 for number in hashes]
    return {
        "test": make([each for each, yes in zip(documents, is_test, strict=True) if yes]),
        "train": make([each for each, yes in zip(documents, is_test, strict=True) if not yes]),
    }
