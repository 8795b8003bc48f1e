"""What to do about a corrupt index or table of a complete output.

A run that finds no index writes index and tables again from its plan and receipts, at no cost. A copied dataset has
neither: there a run without index.json finds an output that it must refuse, or makes all shards again. So deleting the
index is advised only where `can_be_rewritten`.
"""

from __future__ import annotations

from tokenization_worker.errors import TokenizationError
from tokenization_worker.output import layout
from tokenization_worker.storage.base import Store

_RECEIPTS = (f"/{layout.RANGE_RECEIPTS}", f"/{layout.COUNTED_RECEIPTS}")

NOT_REWRITTEN = (
    f"do not delete {layout.INDEX}: the run's plan and receipts (below {layout.OWN}) are not there, so nothing could "
    "write it again"
)


def can_be_rewritten(store: Store) -> bool:
    """Whether a run would write index and tables again from the receipts at `store`."""
    try:
        if store.stat(layout.PLAN) is None:
            return False
        return any(folder in entry.path for entry in store.list(layout.LEDGER) for folder in _RECEIPTS)
    except TokenizationError:  # this user may not look there
        return False


def advise_index(store: Store) -> str:
    """The next step for a corrupt `index.json`."""
    if not can_be_rewritten(store):
        return f"restore it from a copy; {NOT_REWRITTEN}"
    return (
        "restore it from a copy, or delete this file and start the same `tokjob run` or `tokjob train` again: it "
        "writes what is lost again from the ledger"
    )


def advise_table(store: Store) -> str:
    """The next step for a table that is missing or corrupt."""
    if not can_be_rewritten(store):
        return f"restore it from a copy; {NOT_REWRITTEN}"
    return f"restore it from a copy, or delete {layout.INDEX} and run the job again, which writes both again"


def advise_training(store: Store, *, also: str = "") -> str:
    """The next step for a file of a finished training that is gone or not as it was made. `also`: what to delete beside
    the index, such as "this file and "."""
    if not can_be_rewritten(store):
        return f"restore it from a copy; {NOT_REWRITTEN}"
    return (
        f"restore it from a copy; or delete {also}{layout.INDEX} and start the same `tokjob train` again, which trains "
        "again from the counts"
    )
