"""Between two shards of a shuffle the order goes on, and no document stands on both sides but one that is cut."""

from __future__ import annotations

import pytest

from tokenization_worker.verification.claims import ClaimedFile, ShardClaim
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.check import ShardOrder, check_order_between
from tokenization_worker.verification.shards.places import Place


def claim(index: int, start: int) -> ShardClaim:
    files = (ClaimedFile("Npy", f"{index}.npy", 1, "", ""),)
    return ShardClaim(0, start, "train", index, 10, 10, 0, 2, files, "")


@pytest.mark.parametrize(
    ("last", "first", "is_continued", "is_wrong"),
    [
        ((5, 1, 1, 0), (6, 0, 0, 0), False, False),
        ((5, 1, 1, 0), (5, 1, 2, 0), False, False),
        ((5, 1, 1, 0), (5, 1, 1, 0), True, False),
        ((5, 1, 1, 0), (5, 1, 1, 0), False, True),
        ((5, 1, 1, 0), (5, 1, 0, 0), False, True),
        ((5, 1, 1, 0), (4, 9, 9, 0), False, True),
    ],
    ids=["a larger key", "a later place", "the rest of a document", "twice", "an earlier place", "a smaller key"],
)
def test_the_next_shard_begins_behind_the_last_document(
    last: Place, first: Place, is_continued: bool, is_wrong: bool
) -> None:
    shards = [
        (claim(0, 0), ShardOrder((0, 0, 0, 0), last, is_continued=False)),
        (claim(1, 10), ShardOrder(first, (9, 9, 9, 0), is_continued=is_continued)),
    ]
    found = [(finding.fault, finding.path) for finding in check_order_between(shards)]
    assert found == [(Fault.ORDER_WRONG, "1.npy")] * is_wrong
    behind_a_gap = [shards[0], (claim(2, 20), shards[1][1])]
    assert list(check_order_between(behind_a_gap)) == []
