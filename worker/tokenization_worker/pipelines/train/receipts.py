"""Receipts of a training: of a counted range, and of the merged counts; and where the ledger finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import force_setattr

from tokenization_worker.output import layout
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.ledger.receipts import Count, Digest, Record
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.scan import RECORD
from tokenization_worker.readers.document_batch import FileOutcome

MERGED_KEY = 0


class DroppedFile(Record, frozen=True, gc=False):
    """A corrupt file: nothing of it is counted, in this range or another."""

    file: Count
    outcome: str
    detail: str

    def __post_init__(self) -> None:
        force_setattr(self, "outcome", FileOutcome(self.outcome).value)


class CountReceipt(Record, frozen=True, gc=False):
    """A range is counted: its scratch objects are written.

    `documents`: counted; `held_out`, `left_out`: by the holdout, and by the shares of groups. `quarantined`: unusable
    ones by reason, `first_unusable`: the first of them in words. `read_bytes`, `quarantined_bytes`: of documents
    (docs/policy.md). `pieces`: each as often as it was counted; `distinct`: different ones in the largest table.
    """

    plan_id: str
    range_id: Count
    documents: Count
    held_out: Count
    left_out: Count
    quarantined: dict[str, Count]
    read_bytes: Count
    quarantined_bytes: Count
    text_bytes: Count
    source_bytes: Count
    stored_bytes: Count
    pieces: Count
    distinct: Count
    dropped: tuple[DroppedFile, ...]
    first_unusable: str
    node: str
    pid: Count
    seconds: float

    def __post_init__(self) -> None:
        self._hold_once("plan_id", "node")

    @property
    def documents_read(self) -> int:
        """Counted, held out, left out, or unusable."""
        return self.documents + self.held_out + self.left_out + sum(self.quarantined.values())

    def disagreement(self, other: CountReceipt) -> str | None:
        """How two counts of one range differ, in words; None where they do not, or dropped other files."""
        if self.dropped != other.dropped:
            return None
        for name in ("documents", "held_out", "left_out", "quarantined", "text_bytes", "pieces"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine} here, {theirs} there"
        return None


class MergeReceipt(Record, frozen=True, gc=False):
    """The counts of all ranges are merged: `digest` is of the pieces, `distinct` how many there are, and `size` the
    bytes of their file. `held_out`: documents in the file of the holdout.
    """

    plan_id: str
    digest: Digest
    pieces: Count
    distinct: Count
    size: Count
    held_out: Count
    node: str
    pid: Count
    seconds: float

    def disagreement(self, other: MergeReceipt) -> str | None:
        """How two merges differ, in words; None when they do not."""
        return None if self.digest == other.digest else f"pieces {self.digest} here, {other.digest} there"


class _CountedKind:
    """Receipts of counted ranges, by number."""

    folder = layout.COUNTED_RECEIPTS

    def pattern(self, plan: Plan) -> str:
        return RECORD

    def name_starts(self, plan: Plan, found: Ledger) -> list[str]:
        return [f"{range_id:08d}" for range_id in range(plan.n_ranges)]

    def decode(self, record: dict[str, Any]) -> CountReceipt:
        return CountReceipt.from_dict(record)

    def key_of(self, receipt: CountReceipt) -> int:
        return receipt.range_id

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, CountReceipt], None]:
        def check(path: str, receipt: CountReceipt) -> None:
            if path != layout.counted_receipt_path(receipt.range_id):
                raise ValueError(f"it is the receipt of range {receipt.range_id}")
            if receipt.range_id >= plan.n_ranges:
                raise ValueError(f"the plan has {plan.n_ranges} ranges")

        return check


class _MergedKind:
    """The receipt of the merged counts."""

    folder = layout.MERGED_RECEIPTS

    def pattern(self, plan: Plan) -> str:
        return RECORD

    def name_starts(self, plan: Plan, found: Ledger) -> list[str]:
        return [f"{MERGED_KEY:08d}"]

    def decode(self, record: dict[str, Any]) -> MergeReceipt:
        return MergeReceipt.from_dict(record)

    def key_of(self, receipt: MergeReceipt) -> int:
        return MERGED_KEY

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, MergeReceipt], None]:
        def check(path: str, receipt: MergeReceipt) -> None:
            if path != layout.merged_receipt_path():
                raise ValueError("it is the receipt of all counts")

        return check


COUNTED = _CountedKind()
MERGED = _MergedKind()
KINDS = (COUNTED, MERGED)
