"""Lists very many objects whose names are known.

Pages of a listing come one after the other, a thousand objects a call. Where a call takes 50 ms, 200,000 objects are
10 s in one listing, and less than one in two hundred, 32 of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from os.path import commonprefix

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.storage.base import Entry, Store

PAGE_OBJECTS = 1_000
"""What one call gives at most, on Cloud Storage."""


def list_at_once(store: Store, prefixes: Sequence[str]) -> Iterator[Entry]:
    """The objects below all prefixes, as many listings at once as the store allows; in no particular order."""
    for entries in map_at_once(lambda prefix: list(store.list(prefix)), prefixes, store.connections):
        yield from entries


def list_known(store: Store, paths: Sequence[str]) -> Iterator[Entry]:
    """The objects at `paths`, and maybe others whose paths begin like theirs; each once, in no particular order."""
    return list_at_once(store, split_prefixes(paths, len(paths) if store.connections == 1 else PAGE_OBJECTS))


def delete_all(store: Store, entries: Sequence[Entry]) -> None:
    """Delete these versions, as many at once as the store allows; what is gone or another by now stays as it is."""
    for _ in map_at_once(lambda entry: store.delete(entry.path, version=entry.version), entries, store.connections):
        pass


def split_prefixes(paths: Sequence[str], most: int) -> list[str]:
    """Prefixes, none of which begins with another: each of `paths` begins with one of them.

    So long that at most `most` paths begin with each, where names differ early enough.
    """
    if not paths:
        return []
    length = len(commonprefix([min(paths), max(paths)]))  # noqa: RUF071  a listing takes any prefix
    shortest = min(map(len, paths))
    while True:
        counts = Counter(path[:length] for path in paths)
        if length == shortest or max(counts.values()) <= most:
            return sorted(counts)
        length += 1
