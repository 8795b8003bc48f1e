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


def packed_shards_of(
    documents: Sequence[Document],
    *,
    length: int,
    pad: int,
    window: int,
    block: int,
    most: int | None,
    is_cut: Callable[[int], bool] = lambda size: False,
    seed: int | None = None,
) -> list[RowShard]:
    """The shards of one stream whose rows are packed by best fit: the textbook's loop. `window`: tokens of the stream
    in which the documents of a shard end; `block`: tokens of a block at most; `most`: pieces in a row; `is_cut`:
    which pieces are cut in two although they fit, which no product does. With `seed` each block has so many tokens,
    all rows are shuffled, and a shard has `window` tokens, padding included."""
    n_blocks = 1 if seed is not None else -(-window // block)
    run = block if seed is not None else window  # tokens that are cut into blocks
    blocks: dict[tuple[int, int], list[Document]] = {}
    end = 0
    for document in documents:
        end += len(document.tokens)
        if document.tokens:
            number, place = divmod(end - 1, run)
            in_run = max(each for each in range(n_blocks) if each * run // n_blocks <= place)
            blocks.setdefault((number, in_run), []).append(document)
    rows: dict[int, list[list[tuple[Document, int, int]]]] = {}
    for (number, _), mine in sorted(blocks.items()):
        rows.setdefault(number, []).extend(pack(mine, length, most, is_cut))
    if seed is None:
        return [_shard_of(rows.get(number, []), length, pad) for number in range(1 + max(rows, default=-1))]
    joined = [row for number in sorted(rows) for row in rows[number]]
    joined.sort(key=lambda row: key(seed, row[0][0].file, row[0][0].position, row[0][1]))
    step = window // length
    return [_shard_of(joined[at : at + step], length, pad) for at in range(0, len(joined), step)]


def _shard_of(rows: Sequence[Sequence[tuple[Document, int, int]]], length: int, pad: int) -> RowShard:
    shard = RowShard([], [])
    for row in rows:
        tokens: list[int] = []
        for document, offset, size in row:
            shard.parts.append(Part(document.position, document.file, len(shard.rows), len(tokens), size, offset))
            tokens += document.tokens[offset : offset + size]
        shard.rows.append(tokens + [pad] * (length - len(tokens)))
    return shard


def pack(
    documents: Sequence[Document], length: int, most: int | None, is_cut: Callable[[int], bool] = lambda size: False
) -> list[list[tuple[Document, int, int]]]:
    """The rows of a block: of each piece its document, its offset and its tokens. Of the rows with least room the one
    that has had it longest gets a piece."""
    pieces = []
    for document in documents:
        for offset in range(0, len(document.tokens), length):
            size = min(length, len(document.tokens) - offset)
            cuts = [size // 2, size - size // 2] if size > 1 and is_cut(size) else [size]
            pieces += [(len(pieces), document, offset + sum(cuts[:at]), each) for at, each in enumerate(cuts)]
    rows: list[list[tuple[int, Document, int, int]]] = []
    changed: list[int] = []
    for step, piece in enumerate(sorted(pieces, key=lambda piece: (-piece[3], piece[0], piece[2]))):
        size = piece[3]
        rooms = [length - sum(each[3] for each in row) for row in rows]
        open_rows = [
            number for number, row in enumerate(rows) if rooms[number] >= size and (most is None or len(row) < most)
        ]
        if open_rows:
            best = min(open_rows, key=lambda number: (rooms[number], changed[number]))
        else:
            best = len(rows)
            rows.append([])
            changed.append(step)
        rows[best].append(piece)
        changed[best] = step
    in_order = sorted(sorted(row, key=lambda piece: (piece[0], piece[2])) for row in rows)
    return [[piece[1:] for piece in row] for row in in_order]


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
