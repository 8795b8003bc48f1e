"""Plans, receipts and ledgers of runs that have done something already."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tokenization_worker.output.ledger.receipts import RangeReceipt, SliceResult
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.storage.source_file import SourceFile


def ledger_of_ranges(receipts: Iterable[RangeReceipt]) -> TokenizeLedger:
    """A ledger of these receipts alone: no segment is there."""
    ledger = TokenizeLedger()
    for receipt in receipts:
        ledger.add_range(receipt)
    return ledger


RANGES = 20_000
"""Of the plan of small files."""


def plan_of_small_files() -> Plan:
    """Each file is a range of its own, of 10 stored bytes."""
    numbers = np.arange(RANGES)
    zeros = np.zeros(RANGES, np.int64)
    cut = Cut(numbers.astype(np.int32), zeros, zeros - 1, np.arange(RANGES + 1), zeros + 10)
    files = tuple(SourceFile(f"/{number}", 10, "v") for number in range(RANGES))
    return Plan("plan", "data", "run", {}, files, (None,) * RANGES, cut)


def receipt(range_id: int) -> RangeReceipt:
    """Of one file with 3 documents, 2 of which are written with 7 tokens."""
    result = SliceResult(range_id, "Read", "", (7,), (2,), 3, {"InvalidJSON": 1}, "")
    return RangeReceipt("plan", 0, range_id, (result,), "", 0, "", 0, 20, 10, 0, "reference", "here", 1, 0.0)
