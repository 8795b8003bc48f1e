"""Deletes the corrupt objects of an unfinished run that the run can create again.

Receipts, verdicts on files and lists of unusable documents follow from the source and the plan, so that a run need not
stop for one of them. A corrupt object is deleted in the version that was read: one that a concurrent run has made again
stays. The process that makes it again creates it, and compares it with the object that another writer created
meanwhile. Plan, epochs and verdicts on documents cannot be derived from anything else: a corrupt one stops the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenization_worker.events import Warned, Watcher
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.ledger.quarantine import find_corrupt_lists
from tokenization_worker.output.record import made_again
from tokenization_worker.output.scan import CorruptRecord
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.storage.base import Store

_MOST_NAMED = 20
"""Records that are named one by one: a failing disk may have changed thousands of them."""


def discard_corrupt_records(store: Store, corrupt: Sequence[CorruptRecord], watch: Watcher) -> None:
    """Delete records that were found corrupt; reports them to `watch`."""
    for record in corrupt[:_MOST_NAMED]:
        damage = f"{store.uri}/{record.path} is corrupt: {record.detail}"
        watch(Warned(f"{damage}; this run deletes it, and {made_again(record.path)}"))
    if len(corrupt) > _MOST_NAMED:
        more = len(corrupt) - _MOST_NAMED
        those = f"{counted(more, 'more corrupt record')} below {store.uri}/{layout.OWN}"
        watch(Warned(f"this run deletes {those} and writes them again"))

    def delete(record: CorruptRecord) -> None:
        store.delete(record.path, version=record.version)

    for _ in map_at_once(delete, corrupt, store.connections):
        pass


def lacks_only_corrupt_receipts(ledger: TokenizeLedger, n_ranges: int) -> bool:
    """Whether corrupt receipts are all that a complete dataset's ledger lacks, so that a few tasks make it whole.

    Otherwise it was moved in parts, and making it whole would be making the dataset again.
    """
    lost = sum(record.path.startswith(layout.LEDGER) for record in ledger.corrupt)
    lost_ranges = sum(layout.is_range_receipt(record.path) for record in ledger.corrupt)
    return lost > 0 and len(ledger.ranges) + lost_ranges == n_ranges


def discard_corrupt_lists(store: Store, epoch: int, ledger: TokenizeLedger, watch: Watcher) -> set[int]:
    """Delete the lists of unusable documents that are not what their receipts say; returns their ranges."""
    lists = ((range_id, receipt.quarantine_digest) for range_id, receipt in sorted(ledger.ranges.items()))
    found: set[int] = set()
    for range_id, entry in find_corrupt_lists(store, epoch, (named for named in lists if named[1])):
        watch(
            Warned(
                f"{store.uri}/{entry.path}, the list of unusable documents of range {range_id}, is corrupt: it does "
                "not match the range's receipt; this run deletes it and tokenizes the range again"
            )
        )
        store.delete(entry.path, version=entry.version)
        found.add(range_id)
    return found
