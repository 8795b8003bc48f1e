"""Ledgers of runs that have done something already."""

from __future__ import annotations

from collections.abc import Iterable

from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger


def ledger_of_ranges(receipts: Iterable[RangeReceipt]) -> TokenizeLedger:
    """A ledger of these receipts alone: no segment is there."""
    ledger = TokenizeLedger()
    for receipt in receipts:
        ledger.add_range(receipt)
    return ledger
