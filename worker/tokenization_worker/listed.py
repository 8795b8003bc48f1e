"""Reading what lies below `_tokenization/` in great numbers: records, and names that tell of something.

Whoever reads knows what names there can be, so a store with a network in between is listed in parts, at once. Records
come with the listing where their objects carry them (see `carried`), and are read, several at once, where not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tokenization_worker.carried import record_of
from tokenization_worker.parallel import map_at_once
from tokenization_worker.records import load_record, parsing
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.listing import PAGE_OBJECTS, list_at_once, split_prefixes

NUMBER = r"[0-9]{8,}"
RECORD = rf"{NUMBER}\.json"

R = TypeVar("R")


def list_ours(store: Store, folder: str, pattern: str, names: Iterable[str] = ("",)) -> Iterator[str]:
    """Paths below `folder` whose rest matches `pattern`: not what a file manager or NFS leaves beside them.

    `names`: the rest of each begins with one of these.
    """
    ours = re.compile(re.escape(folder) + pattern)
    for entry in list_at_once(store, _prefixes(store, folder, names)):
        if ours.fullmatch(entry.path):
            yield entry.path


def read_ours(
    store: Store, folder: str, pattern: str, names: Iterable[str], make: Callable[[str, dict[str, Any]], R]
) -> Iterator[R]:
    """`make(path, fields)` of every record that `list_ours` would find, in no particular order; may run in a thread.

    Raises `DataError("RecordCorrupt")` for one that is not as it was written, or of which `make` cannot be made.
    """
    ours = re.compile(re.escape(folder) + pattern)

    def load(path: str, data: bytes) -> R:
        with parsing(store.uri, path):
            return make(path, load_record(data))

    def list_part(prefix: str) -> tuple[list[R], list[str]]:
        loaded, unread = [], []
        for entry in store.list(prefix):
            if ours.fullmatch(entry.path):
                data = record_of(entry)
                if data is None:
                    unread.append(entry.path)
                else:
                    loaded.append(load(entry.path, data))
        return loaded, unread

    to_read: list[str] = []
    for loaded, unread in map_at_once(list_part, _prefixes(store, folder, names), store.connections):
        yield from loaded
        to_read += unread
    yield from map_at_once(lambda path: load(path, store.read(path)), to_read, store.connections)


def _prefixes(store: Store, folder: str, names: Iterable[str]) -> list[str]:
    return [folder] if store.connections == 1 else split_prefixes([folder + name for name in names], PAGE_OBJECTS)
