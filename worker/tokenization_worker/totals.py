"""A run's sums: per file and in all, from the receipts. Decides whether they are right and within the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenization_worker import layout
from tokenization_worker.api.quantities import Limit
from tokenization_worker.commit import Disagreement
from tokenization_worker.errors import DataError
from tokenization_worker.ledger import Ledger
from tokenization_worker.plan import Plan
from tokenization_worker.readers.documents import FileOutcome, Reason
from tokenization_worker.receipts import ShardReceipt
from tokenization_worker.storage.base import Store


@dataclass(slots=True)
class FileTotals:
    """One file's row of files.jsonl.zst; counts are of all its slices, per stream where lists.

    There may be a million of them: what most files do not have takes no room.
    """

    documents: list[int]
    tokens: list[int]
    records: int = 0
    outcome: str = FileOutcome.READ
    detail: str = ""
    quarantined: Counter[str] | None = None

    @property
    def is_read(self) -> bool:
        return self.outcome == FileOutcome.READ


LinesBefore = dict[tuple[int, int], int]
"""(range, slice) -> records of its file before it; for ranges that have unusable documents."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole run's sums; dropped files count in `dropped` only."""

    written: int
    quarantined: Counter[str]
    tokens: int
    dropped: Counter[str]

    @property
    def read(self) -> int:
        return self.written + self.quarantined.total()


def add_up_files(plan: Plan, ledger: Ledger, n_streams: int) -> tuple[list[FileTotals], LinesBefore]:
    """Per file, from the receipts of all its slices; needs every receipt."""
    files = [FileTotals(documents=[0] * n_streams, tokens=[0] * n_streams) for _ in plan.files]
    lines_before: LinesBefore = {}
    for range_id in range(plan.n_ranges):
        receipt = ledger.ranges[range_id]
        for number, result in enumerate(receipt.slices):
            totals = files[result.file]
            if receipt.quarantine_digest:
                lines_before[range_id, number] = totals.records
            totals.records += result.records
            if not result.is_read:
                totals.outcome, totals.detail = result.outcome, result.detail or totals.detail
            for stream in range(n_streams):
                totals.documents[stream] += result.docs[stream]
                totals.tokens[stream] += result.tokens[stream]
            if result.quarantined:
                totals.quarantined = (totals.quarantined or Counter()) + Counter(result.quarantined)
    return files, lines_before


def add_up(files: Iterable[FileTotals]) -> Totals:
    """The sums over files; a dropped file has no documents."""
    written, tokens = 0, 0
    quarantined: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for totals in files:
        if totals.is_read:
            written += sum(totals.documents)
            tokens += sum(totals.tokens)
            quarantined.update(totals.quarantined or {})
        else:
            dropped[totals.outcome] += 1
    return Totals(written, quarantined, tokens, dropped)


_LOOK = "check source.uris and source.textField"
_TOO_LARGE = "every text is larger than documents.maxBytes: raise it, and write elsewhere or `tokjob clean` this output"


def check_limits(store: Store, totals: Totals, limit: Limit, epoch: int) -> None:
    """Raise QuarantineExceeded or NoDocuments; judged at the end, when the number read is known."""
    count = totals.quarantined.total()
    where = f"{store.uri}/{layout.quarantine_prefix(epoch)}"
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in totals.quarantined.most_common(3))
    if count > limit.allowed(totals.read):
        raise DataError(
            "QuarantineExceeded",
            f"{count:,} of {totals.read:,} documents are unusable ({reasons}); maxQuarantined allows "
            f"{limit.allowed(totals.read):,}; they are listed in {where}",
            next_step="look at the list; raise maxQuarantined and start again (nothing is redone), or mend the source "
            "and start a new run: write elsewhere or `tokjob clean` this output",
        )
    if not totals.written:
        raise DataError(
            "NoDocuments",
            f"no document was written: {totals.read:,} read, {count:,} unusable"
            + (f" ({reasons}; listed in {where})" if count else "")
            + f", {totals.dropped.total():,} files dropped",
            next_step=_TOO_LARGE if set(totals.quarantined) == {Reason.DOCUMENT_TOO_LARGE} else _LOOK,
        )
    if not totals.tokens:
        raise DataError(
            "NoDocuments",
            "no token was written: every document is an empty text, and there is no delimiter",
            next_step=f"{_LOOK}; or set tokenizer.delimiter.position: Before",
        )


def check_conservation(totals: Totals, shards: Sequence[ShardReceipt], *, delimited: bool) -> None:
    """Raise NotConserved unless files and shards hold the same number of tokens and of documents.

    Every document begins in one shard, but for those of no tokens: empty texts that are not `delimited`.
    """
    tokens = sum(shard.tokens for shard in shards)
    documents = sum(shard.documents for shard in shards)
    if tokens != totals.tokens:
        raise _not_conserved("tokens", totals.tokens, tokens)
    if documents > totals.written or (delimited and documents < totals.written):
        raise _not_conserved("documents", totals.written, documents)


def _not_conserved(what: str, in_files: int, in_shards: int) -> Disagreement:
    return Disagreement(
        "NotConserved",
        f"receipts count {in_files:,} {what} in files and {in_shards:,} in shards",
        next_step="this is a bug: please report it with the _tokenization folder",
    )
