"""Adds up what became of the documents of a training, and holds it against the limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.errors import DataError
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.train.receipts import CountReceipt
from tokenization_worker.planning.limits import DocumentCounts, QuarantineExceeded, excess, too_many_corrupt


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all ranges that count. `documents`: counted."""

    documents: int
    held_out: int
    left_out: int
    quarantined: dict[str, int]
    read_bytes: int
    quarantined_bytes: int
    text_bytes: int
    first_unusable: str

    @property
    def read(self) -> int:
        """Counted, held out, left out, or unusable."""
        return self.documents + self.held_out + self.left_out + sum(self.quarantined.values())


def add_up(receipts: Iterable[CountReceipt]) -> Totals:
    """The totals of these ranges."""
    sums, quarantined, first = Counter[str](), Counter[str](), ""
    for receipt in receipts:
        quarantined.update(receipt.quarantined)
        first = first or receipt.first_unusable
        for name in ("documents", "held_out", "left_out", "read_bytes", "quarantined_bytes", "text_bytes"):
            sums[name] += getattr(receipt, name)
    return Totals(
        documents=sums["documents"],
        held_out=sums["held_out"],
        left_out=sums["left_out"],
        quarantined=dict(quarantined),
        read_bytes=sums["read_bytes"],
        quarantined_bytes=sums["quarantined_bytes"],
        text_bytes=sums["text_bytes"],
        first_unusable=first,
    )


def require_usable(totals: Totals, limits: RunLimits) -> None:
    """Raise where too many documents are unusable, or none was counted."""
    reasons = Counter(totals.quarantined)
    counts = DocumentCounts(totals.read, reasons, totals.read_bytes, totals.quarantined_bytes)
    words = excess(counts, limits.max_quarantined)
    if words is not None:
        raise QuarantineExceeded(
            "QuarantineExceeded",
            f"{words}; the first: {totals.first_unusable}",
            next_step="raise maxQuarantined and start the same command again, which counts nothing twice; or correct "
            "the source, and train at another output.uri",
        )
    if totals.left_out and totals.left_out + sum(totals.quarantined.values()) == totals.read:
        raise DataError(
            "NoDocuments",
            f"no text was counted: the shares of source.groups leave out all {counted(totals.left_out, 'document')}",
            next_step="raise the share of a group, and train at another output.uri",
        )
    if not totals.text_bytes:
        raise DataError(
            "NoDocuments",
            f"no text was counted: {totals.read:,} documents read, {sum(totals.quarantined.values()):,} unusable, "
            f"{totals.held_out:,} held out, {totals.left_out:,} left out by the shares of groups",
            next_step="check source.uris and source.textField; a source of a few documents needs holdout: 0%",
        )


def require_few_corrupt(dropped: dict[int, tuple[str, str]], plan: Plan, limits: RunLimits) -> None:
    """Raise the first corrupt file's error if there are more than the training allows."""
    if len(dropped) <= limits.max_corrupt_files.allowed(len(plan.files)):
        return
    file, (outcome, detail) = next(iter(dropped.items()))
    what = f"{plan.files[file].uri}: {detail}"
    raise too_many_corrupt(outcome, what, len(dropped), len(plan.files), limits.max_corrupt_files)
