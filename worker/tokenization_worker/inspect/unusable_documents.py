"""Lists the unusable documents at an output: of a dataset, or of a run that failed or still runs.

A dataset has a table of them. Before that they are in lists, one a range, of which the receipts say which count; lists
have no line numbers, because those need the ranges before in the file to be done. A range without a receipt may have a
list, too: of what it had found when it ended early.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenization_worker.output import layout
from tokenization_worker.output.index import not_an_output, read_own_index
from tokenization_worker.output.ledger.epochs import current_epoch
from tokenization_worker.output.ledger.quarantine import read_range_lists
from tokenization_worker.output.plan_file import Plan, read_plan
from tokenization_worker.output.tables import table_rows
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger, read_tokenize_ledger
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store


@dataclass(frozen=True, slots=True)
class UnusableDocument:
    """A row of the quarantine table. `record`: line, piece or row, from 1; None where it is not known yet."""

    uri: str
    position: int
    record: int | None
    reason: str
    detail: str
    excerpt: str


def read_unusable(uri: str | os.PathLike[str]) -> Iterator[UnusableDocument]:
    """All unusable documents found so far, in the order of the source; raises `SpecError` where there is no run.

    Those of files that are dropped whole do not count. Held is a range's list, or a table in packed form.
    """
    store = open_store(os.fspath(uri))
    index = read_own_index(store)
    if index is not None:
        return (_document(row, row["record"]) for _, row in table_rows(store, layout.QUARANTINE_TABLE))
    plan = read_plan(store)
    if plan is None:
        raise not_an_output(store)
    return _read_lists(store, plan)


def _read_lists(store: Store, plan: Plan) -> Iterator[UnusableDocument]:
    try:
        epoch = current_epoch(store).number
    except NotFound:  # the run has not begun to work
        return
    ledger = read_tokenize_ledger(store, plan, epoch)
    results = [result for receipt in ledger.ranges.values() for result in receipt.slices]
    dropped = {result.file for result in results if not result.is_read} | ledger.verdicts.keys()
    before = _records_before(plan, ledger)
    digests = _unfinished_lists(store, epoch, ledger)
    digests |= {number: receipt.quarantine_digest for number, receipt in ledger.ranges.items()}
    lists = ((number, digest) for number, digest in sorted(digests.items()) if digest)
    for number, row in read_range_lists(store, epoch, (named for named in lists if named[0] not in ledger.lost_lists)):
        if row["file"] not in dropped:
            records = before.get((number, row["slice"]))
            yield _document(row, None if records is None else records + row["record"] + 1)


def _unfinished_lists(store: Store, epoch: int, ledger: TokenizeLedger) -> dict[int, str]:
    """Range -> what is known of its list's digest, of ranges that have ended early: the longest of each.

    All lists of one range begin alike.
    """
    prefix = layout.quarantine_prefix(epoch)
    sizes: dict[int, int] = {}
    digests: dict[int, str] = {}
    for entry in store.list(prefix):
        found = re.fullmatch(r"(\d{8})-([0-9a-f]{16})\.jsonl\.zst", entry.path.removeprefix(prefix))
        number = int(found[1]) if found else -1
        if found and number not in ledger.ranges and entry.size > sizes.get(number, 0):
            sizes[number], digests[number] = entry.size, found[2]
    return digests


def _records_before(plan: Plan, ledger: TokenizeLedger) -> dict[tuple[int, int], int]:
    """(range, slice) -> records of its file before that slice, where every range before in the file is done.

    A range that is not done itself may have begun.
    """
    known: dict[tuple[int, int], int] = {}
    file, records = -1, 0
    unknown = -1  # the file whose records after a range that is not done cannot be counted
    for number in range(plan.n_ranges):
        receipt = ledger.ranges.get(number)
        if receipt is None:
            begin, end = plan.cut.range_slice[number : number + 2].tolist()
            for place, slice_file in enumerate(plan.cut.slice_file[begin:end].tolist()):
                records = records if slice_file == file else 0
                file = slice_file
                if file != unknown:
                    known[number, place] = records
            unknown = file
            continue
        for place, result in enumerate(receipt.slices):
            if result.file != file:
                file, records = result.file, 0
            if result.file != unknown:
                known[number, place] = records
            records += result.records
    return known


def _document(row: dict[str, Any], record: int | None) -> UnusableDocument:
    return UnusableDocument(row["uri"], row["position"], record, row["reason"], row["detail"], row["excerpt"])
