"""Removes the scratch objects of a run when no task needs them any more."""

from __future__ import annotations

from collections.abc import Iterable

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.layout import ScatterKey
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.listing import delete_all


def discard_scratch(store: Store, epoch: int, products: Iterable[int | ScatterKey]) -> None:
    """Remove the segments of ranges, and scattered objects, as many at once as the store allows."""
    paths = [layout.scratch_path(epoch, product) for product in products]
    for _ in map_at_once(store.discard, paths, store.connections):
        pass


def remove_scratch(store: Store) -> None:
    """Delete all scratch objects and what dead writers left; nothing of the dataset or the ledger, and no file of
    others."""
    n_epochs = sum(1 for _ in store.list(layout.EPOCHS))
    for epoch in range(n_epochs):
        _delete_own(store, layout.segments_prefix(epoch))
        _delete_own(store, layout.scattered_prefix(epoch))
    # A probe is of a start that was killed, or was not let, between its creation and its end.
    for _ in map_at_once(store.delete, (layout.WRITE_CHECK, layout.FAILURE), store.connections):
        pass
    _delete_own(store, layout.ALIVE)  # of runs that were killed
    store.close_scratch()


def _delete_own(store: Store, prefix: str) -> None:
    delete_all(store, [entry for entry in store.list(prefix) if layout.is_own_name(entry.path)])
