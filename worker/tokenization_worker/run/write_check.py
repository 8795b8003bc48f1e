"""The write check: creates and removes an object, so that a start refuses an output that it cannot write."""

from __future__ import annotations

from contextlib import suppress

from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.local.os_errors import map_os_errors


def check_writable(store: Store) -> None:
    """Raise what creating or removing an object raises."""
    create_bytes(store, layout.WRITE_CHECK, b"")
    store.delete(layout.WRITE_CHECK)


def check_writable_leaving_nothing(store: Store) -> None:
    """`check_writable`, which then also removes the folders that it created."""
    root = store.local_path("")
    folders = [] if root is None else [root / layout.OWN, root, *root.parents]
    with map_os_errors("inspect", store.uri):
        missing = [folder for folder in folders if not folder.exists()]
    try:
        check_writable(store)
        store.close_scratch()
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
