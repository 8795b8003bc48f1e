"""Lists and reads many records below `_tokenization/`, in parallel.

Whoever reads knows what names there can be, so a store with a network in between is listed in parts, at once. Records
come with the listing where their objects carry them (see `object_metadata`), and are read, several at once, where not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output.object_metadata import record_of
from tokenization_worker.output.record import load_record, parsing
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.listing import PAGE_OBJECTS, list_at_once, split_prefixes

NUMBER = r"[0-9]{8,}"
RECORD = rf"{NUMBER}\.json"

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CorruptRecord:
    """A record that is not as it was written. `version`: which object it is; `detail`: how that shows."""

    path: str
    version: str
    detail: str


def list_ours(store: Store, folder: str, pattern: str, names: Iterable[str] = ("",)) -> Iterator[str]:
    """Paths below `folder` whose rest matches `pattern`: not what a file manager or NFS leaves beside them.

    `names`: the rest of each begins with one of these.
    """
    ours = re.compile(re.escape(folder) + pattern)
    for entry in list_at_once(store, _prefixes(store, folder, names)):
        if ours.fullmatch(entry.path):
            yield entry.path


def read_ours(
    store: Store,
    folder: str,
    pattern: str,
    names: Iterable[str],
    make: Callable[[str, dict[str, Any]], R],
    corrupt: list[CorruptRecord] | None = None,
) -> Iterator[R]:
    """`make(path, fields)` of every record that `list_ours` would find, in no particular order.

    One that is not as it was written is added to `corrupt`. Without that list it raises `DataError("RecordCorrupt")`,
    as does one that is, and of which `make` cannot be made: another version of this program may have written it.
    """
    ours = re.compile(re.escape(folder) + pattern)

    def load(entry: Entry, data: bytes, *, is_proven: bool = False) -> Iterator[R]:
        with parsing(store.uri, entry.path):
            try:
                fields = load_record(data, is_proven=is_proven)
            except (ValueError, TypeError) as error:
                if corrupt is None:
                    raise
                corrupt.append(CorruptRecord(entry.path, entry.version, str(error)))
                return
        with parsing(store.uri, entry.path, is_whole=True):
            made = make(entry.path, fields)
        yield made

    to_read: list[Entry] = []
    for entry in list_at_once(store, _prefixes(store, folder, names)):
        if ours.fullmatch(entry.path):
            data = record_of(entry)
            if data is None:
                to_read.append(entry)
            else:  # in this thread: many that compute get in each other's way
                yield from load(entry, data, is_proven=True)
    for entry, data in map_at_once(lambda entry: (entry, _read(store, entry.path)), to_read, store.connections):
        if data is not None:
            yield from load(entry, data)


def _read(store: Store, path: str) -> bytes | None:
    """The object's bytes; None where a concurrent run has deleted it since it was listed, because it is corrupt."""
    try:
        return store.read(path)
    except NotFound:
        return None


def _prefixes(store: Store, folder: str, names: Iterable[str]) -> list[str]:
    return [folder] if store.connections == 1 else split_prefixes([folder + name for name in names], PAGE_OBJECTS)
