"""Parts that tile their rows pass, and no part can be changed without a fault: against a loop over single tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.row_oracle import Document, RowShard, shards_of
from tokenization_worker.verification.claims import ClaimedFile, SequenceClaim, ShardClaim
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.documents import PlacedDocuments
from tokenization_worker.verification.shards.parts import PART, Part, Parts
from tokenization_worker.verification.shards.tiling import TilingFault, find_fault_between, find_tiling_fault

PAD = 9


def shards_by_loop(seed: int, length: int, *, by_file: bool) -> tuple[list[Document], list[RowShard]]:
    """Documents of three files, and their rows, four a shard."""
    chance = random.Random(seed)
    documents = [
        Document(file, 10 * number, "", [1] * chance.choice([0, 1, 2, 3, length - 1, length, length + 1, 3 * length]))
        for file in range(3)
        for number in range(chance.randrange(1, 9))
    ]
    return documents, shards_of(documents, length=length, by_file=by_file, pad=PAD, shard_rows=4)


def stored(parts: list[Part] | list[tuple[int, ...]]) -> np.ndarray:
    return np.array([tuple(part) for part in parts], dtype=PART)


def faults_of(shards: list[RowShard], sequence: SequenceClaim) -> list[TilingFault]:
    """Those within shards and between them."""
    inside = [find_tiling_fault(stored(shard.parts), len(shard.rows), sequence) for shard in shards]
    edges = [(Part(*shard.parts[0]), Part(*shard.parts[-1])) for shard in shards]
    before = [None, *(last for _, last in edges[:-1])]
    between = [find_fault_between(last, first, sequence) for last, (first, _) in zip(before, edges, strict=True)]
    return [fault for fault in (*inside, *between) if fault is not None]


CASES = [(seed, length, by_file) for seed in range(12) for length in (2, 3, 8) for by_file in (False, True)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("seed", "length", "by_file"), CASES)
def test_right_parts_have_no_fault_and_every_changed_number_is_one(seed: int, length: int, by_file: bool) -> None:
    """But for the places of documents, which only the source can tell, as far as their order stays."""
    _, shards = shards_by_loop(seed, length, by_file=by_file)
    sequence = SequenceClaim(length, by_file, PAD)
    assert faults_of(shards, sequence) == []
    every = [part for shard in shards for part in shard.parts]
    following = dict(zip(every, [*every[1:], None], strict=True))
    for shard in shards:
        for number, part in enumerate(shard.parts):
            after = following[part]
            is_last = after is None or (by_file and after.file != part.file)  # of its scope
            for name in ("row", "start", "length", "offset"):
                for step in (-1, 1):
                    value = getattr(part, name) + step
                    shard.parts[number] = part._replace(**{name: value})
                    may_be = is_last and name == "length" and 0 < value <= length - part.start
                    if value >= 0 and not may_be:  # tokens and padding say where the last document ends
                        assert faults_of(shards, sequence), (name, part)
            shard.parts[number] = part


@pytest.mark.parametrize(("seed", "length", "by_file"), CASES)
def test_parts_are_those_of_the_documents_and_no_other_numbers_are(seed: int, length: int, by_file: bool) -> None:
    documents, shards = shards_by_loop(seed, length, by_file=by_file)
    start = 0
    ends: list[int] = []
    starts: list[int] = []
    for number, document in enumerate(documents):
        if by_file and number and document.file != documents[number - 1].file:
            start += -start % length
        starts.append(start)
        start += len(document.tokens)
        ends.append(start)
    for file in range(3):
        mine = [n for n, document in enumerate(documents) if document.file == file and document.tokens]
        if not mine:
            continue
        placed = PlacedDocuments(
            file,
            np.array([starts[n] for n in mine]),
            np.array([ends[n] for n in mine]),
            np.array([documents[n].position for n in mine]),
        )
        begin = 0
        for shard in shards:
            size = len(shard.rows) * length
            claim = ShardClaim(0, begin, "s", 0, 0, size, len(shard.rows), 0, (ClaimedFile("", "", 0, "", ""),), "")
            begin += size
            if not (placed.begins[0] < claim.end and claim.start < placed.ends[-1]):
                continue
            assert parts_of(shard, length).difference(claim, placed) is None
            for number, part in enumerate(shard.parts):
                if part.file != file:
                    continue
                for name in ("position", "file", "length", "offset"):
                    shard.parts[number] = part._replace(**{name: getattr(part, name) + 1})
                    difference = parts_of(shard, length).difference(claim, placed)
                    assert difference is not None
                    assert difference.token == part.row * length + part.start
                    assert documents[mine[difference.document]].position == part.position
                shard.parts[number] = part


def parts_of(shard: RowShard, length: int) -> Parts:
    parts = stored(shard.parts)
    return Parts(parts, parts["row"].astype(np.int64) * length + parts["start"])


def test_parts_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the first wrong one is."""
    sequence = SequenceClaim(4, False, PAD)
    parts = stored([(number, 0, number // 4, number % 4, 1, 0) for number in range(40)])
    for size in (1, 2, 7, 40, 100):
        monkeypatch.setattr("tokenization_worker.verification.shards.tiling._PARTS_AT_ONCE", size)
        assert find_tiling_fault(parts, 10, sequence) is None
        for number in range(1, 40):
            wrong = parts.copy()
            wrong["offset"][number] = 1
            fault = find_tiling_fault(wrong, 10, sequence)
            assert fault is not None
            assert (fault.number, fault.found.partition(" of ")[0]) == (number, "tokens 1 to 1")


def test_rows_without_parts_are_a_fault() -> None:
    """At the end of a shard, at its start, and in all of it."""
    sequence = SequenceClaim(8, False, PAD)
    row = stored([(5, 0, 0, 0, 8, 0)])
    assert find_tiling_fault(row, 1, sequence) is None
    [behind, before, none] = [
        find_tiling_fault(row, 2, sequence),
        find_tiling_fault(stored([(5, 0, 1, 0, 8, 0)]), 2, sequence),
        find_tiling_fault(row[:0], 1, sequence),
    ]
    assert behind == TilingFault(1, Fault.PARTS_WRONG, "parts in all 2 rows", "none behind row 0")
    assert (before is not None, none is not None) == (True, True)


def test_a_fault_says_what_where_expected_and_found() -> None:
    parts = stored([(5, 0, 0, 0, 4, 0), (9, 0, 0, 5, 3, 0)])
    fault = find_tiling_fault(parts, 1, SequenceClaim(8, False, PAD))
    assert fault == TilingFault(
        1,
        Fault.PARTS_WRONG,
        "a part where the one before it ends, or at the start of the next row",
        "tokens 0 to 2 of the document at 9 of file 0 in row 0 from token 5 on",
    )
