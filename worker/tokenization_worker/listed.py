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
    """`make(path, fields)` of every record that `list_ours` would find, in no particular order.

    Raises `DataError("RecordCorrupt")` for one that is not as it was written, or of which `make` cannot be made.
    """
    ours = re.compile(re.escape(folder) + pattern)

    def load(path: str, data: bytes, *, is_proven: bool = False) -> R:
        with parsing(store.uri, path):
            return make(path, load_record(data, is_proven=is_proven))

    to_read: list[str] = []
    for entry in list_at_once(store, _prefixes(store, folder, names)):
        if ours.fullmatch(entry.path):
            data = record_of(entry)
            if data is None:
                to_read.append(entry.path)
            else:  # in this thread: many that compute get in each other's way
                yield load(entry.path, data, is_proven=True)
    for path, data in map_at_once(lambda path: (path, store.read(path)), to_read, store.connections):
        yield load(path, data)


def _prefixes(store: Store, folder: str, names: Iterable[str]) -> list[str]:
    return [folder] if store.connections == 1 else split_prefixes([folder + name for name in names], PAGE_OBJECTS)
