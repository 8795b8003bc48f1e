"""Adds up a run's receipts per file and in all, and checks that the sums are right and within the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.errors import DataError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.planning.groups.shares import all_left_out
from tokenization_worker.planning.limits import DocumentCounts, QuarantineExceeded, excess, list_reasons
from tokenization_worker.readers.document_batch import Reason
from tokenization_worker.storage.base import Store


@dataclass(frozen=True, slots=True)
class FileTotals:
    """What all slices of each file add up to; arrays, because there may be a million files.

    `documents`, `tokens` i64[n_files, n_streams]; `quarantined`: of files that have some; `dropped`: file -> (outcome,
    detail) of those that were not read. `records_before` i64[n_slices]: records of its file before each slice.
    `read_bytes`, `quarantined_bytes` i64[n_files]: bytes of documents, -1 where a receipt does not know them.
    `left_out` i64[n_files]: usable documents that the shares of groups leave out. `truncated` i64[n_files, n_streams]:
    tokens of long documents that are not written.
    """

    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    quarantined: dict[int, Counter[str]]
    dropped: dict[int, tuple[str, str]]
    records_before: NDArray[np.int64]
    read_bytes: NDArray[np.int64]
    quarantined_bytes: NDArray[np.int64]
    left_out: NDArray[np.int64]
    truncated: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole run's sums; dropped files count in `dropped` only.

    Bytes are None where a receipt does not know them.
    """

    written: int
    quarantined: Counter[str]
    tokens: int
    dropped: Counter[str]
    read_bytes: int | None
    quarantined_bytes: int | None
    left_out: int
    truncated: int

    @property
    def read(self) -> int:
        return self.written + self.quarantined.total() + self.left_out

    @property
    def documents(self) -> DocumentCounts:
        """What `maxQuarantined` is about."""
        return DocumentCounts(self.read, self.quarantined, self.read_bytes, self.quarantined_bytes)


def add_up_files(plan: Plan, ledger: TokenizeLedger, n_streams: int) -> FileTotals:
    """Per file, from the receipts of all its slices; needs every receipt."""
    n_files = len(plan.files)
    documents = np.zeros((n_files, n_streams), np.int64)
    tokens = np.zeros((n_files, n_streams), np.int64)
    quarantined: dict[int, Counter[str]] = {}
    dropped: dict[int, tuple[str, str]] = {}
    records_before = np.zeros(len(plan.cut.slice_file), np.int64)
    sizes = np.zeros((2, n_files), np.int64)
    left_out = np.zeros(n_files, np.int64)
    truncated = np.zeros((n_files, n_streams), np.int64)
    unknown: set[int] = set()
    last_file = -1
    records = 0
    slices = (result for range_id in range(plan.n_ranges) for result in ledger.ranges[range_id].slices)
    for number, result in enumerate(slices):
        records = records if result.file == last_file else 0
        last_file = result.file
        records_before[number] = records
        records += result.records
        documents[result.file] += result.docs
        tokens[result.file] += result.tokens
        left_out[result.file] += result.left_out or 0
        truncated[result.file] += result.truncated or 0
        if result.read_bytes is None or result.quarantined_bytes is None:
            unknown.add(result.file)
        else:
            sizes[:, result.file] += result.read_bytes, result.quarantined_bytes
        if not result.is_read:
            known = dropped.get(result.file, ("", ""))[1]
            dropped[result.file] = (result.outcome, result.detail or known)
        if result.quarantined:
            quarantined.setdefault(result.file, Counter()).update(result.quarantined)
    sizes[:, list(unknown)] = -1
    return FileTotals(documents, tokens, quarantined, dropped, records_before, sizes[0], sizes[1], left_out, truncated)


def add_up(files: FileTotals, among: slice = slice(None)) -> Totals:
    """The sums over files; a dropped file has no documents. `among`: of a run of files alone."""
    is_read = np.zeros(len(files.documents), np.bool_)
    is_read[among] = True
    numbers = range(len(files.documents))[among]
    dropped = [file for file in files.dropped if file in numbers]
    is_read[dropped] = False
    quarantined: Counter[str] = Counter()
    for file, counts in files.quarantined.items():
        if is_read[file]:
            quarantined.update(counts)
    return Totals(
        written=int(files.documents[is_read].sum()),
        quarantined=quarantined,
        tokens=int(files.tokens[is_read].sum()),
        dropped=Counter(files.dropped[file][0] for file in dropped),
        read_bytes=_sum_of_known(files.read_bytes[is_read]),
        quarantined_bytes=_sum_of_known(files.quarantined_bytes[is_read]),
        left_out=int(files.left_out[is_read].sum()),
        truncated=int(files.truncated[is_read].sum()),
    )


def add_up_groups(plan: Plan, files: FileTotals) -> dict[str, tuple[int, Totals]]:
    """Of each group, in order: its number of files, and its sums."""
    groups: dict[str, tuple[int, Totals]] = {}
    first = 0
    for name, members in groupby(plan.files, key=lambda file: file.group):
        count = sum(1 for _ in members)
        if name:
            groups[name] = count, add_up(files, slice(first, first + count))
        first += count
    return groups


def _sum_of_known(sizes: NDArray[np.int64]) -> int | None:
    return None if (sizes < 0).any() else int(sizes.sum())


_LOOK = "check source.uris and source.textField"
_TOO_LARGE = "every text is larger than documents.maxBytes: raise it, and write elsewhere or `tokjob clean` this output"


def check_limits(store: Store, totals: Totals, limit: Limit, epoch: int, unusable: Iterator[dict[str, Any]]) -> None:
    """Raise QuarantineExceeded or NoDocuments; judged at the end, when the number read is known.

    `unusable`: rows of the quarantine table, of which an error names the first.
    """
    count = totals.quarantined.total()
    where = f"{store.uri}/{layout.quarantine_prefix(epoch)}"
    reasons = list_reasons(totals.quarantined)
    words = excess(totals.documents, limit)
    if words is not None:
        found = f"{words}; the first: {_described(next(unusable))}"
        raise quarantine_exceeded(store, found, "no work is repeated", totals.quarantined)
    if totals.left_out and totals.left_out + count == totals.read:
        raise all_left_out(totals.left_out, f"{count:,} unusable ({reasons}; listed in {where})" if count else "")
    if not totals.written:
        raise DataError(
            "NoDocuments",
            f"no document was written: {totals.read:,} read, {count:,} unusable"
            + (f" ({reasons}; listed in {where})" if count else "")
            + (f", {totals.left_out:,} left out by the shares of groups" if totals.left_out else "")
            + f", {counted(totals.dropped.total(), 'file')} left out",
            next_step=_TOO_LARGE if set(totals.quarantined) == {Reason.DOCUMENT_TOO_LARGE} else _LOOK,
        )
    if not totals.tokens:
        raise DataError(
            "NoDocuments",
            "no token was written: every document is an empty text, and there is no delimiter",
            next_step=f"{_LOOK}; or set tokenizer.delimiter.position: Before",
        )


def quarantine_exceeded(store: Store, found: str, kept: str, reasons: Collection[str]) -> QuarantineExceeded:
    """The error of a run with too many unusable documents; `kept`: what becomes of the work that is done."""
    correct = "correct the source"
    if Reason.DOCUMENT_TOO_LARGE in reasons:
        correct = "correct the source, or raise documents.maxBytes for texts that are larger than it allows,"
    return QuarantineExceeded(
        "QuarantineExceeded",
        found,
        next_step=f"list the documents: {tokjob('show', '--quarantined', store.uri)}; raise maxQuarantined and start "
        f"again ({kept}), or {correct} and start a new run: write elsewhere or `tokjob clean` this output",
    )


def _described(row: dict[str, Any]) -> str:
    return f"{row['uri']} record {row['record']:,}, {row['reason']}: {row['detail']}"


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
