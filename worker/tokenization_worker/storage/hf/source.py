"""Source files in datasets on the Hugging Face Hub.

A file's version is its content checksum: the SHA-256 of a large file, git's SHA-1 of a small one. A branch moves, so it
is looked up once for all files below it, and every file carries the commit as its `pin`: read there again, it is the
same file whatever was pushed since. Bytes are read in ranges and never land on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.hf.client import (
    BadAnswer,
    Page,
    RemoteEntryNotFoundError,
    RevisionNotFoundError,
    file_url,
    hf_wait,
    list_page,
    map_hf_errors,
    range_getter,
    resolve_commit,
    stat_file,
    tree_url,
)
from tokenization_worker.storage.hf.uri import HfUri, split_hf_uri
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import PATIENCE_S, RangedReader
from tokenization_worker.storage.retry import Retry
from tokenization_worker.storage.source_file import SourceFile

T = TypeVar("T")


class HfSource:
    """URIs are `hf://datasets/org/name[@revision]/path`. `pins`: commits of roots that are known; others are added."""

    connections = 8  # the Hub limits requests by the minute

    def __init__(self, pins: dict[str, str] | None = None, *, retry: Retry | None = None) -> None:
        self._pins = {} if pins is None else pins
        self._retry = retry or Retry()

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        place = split_hf_uri(pattern.folder)
        found = self._first_page(pattern.folder, place, recursive=not pattern.is_flat)
        while found is not None:
            files, more = found
            for file in files:
                version = _version(file.blob_id if file.lfs is None else file.lfs.sha256)
                yield SourceFile(f"{place.root}/{file.path}", file.size, version, self._pins[place.root])
            if more is None:
                return
            with map_hf_errors(pattern.folder):
                found = self._call(partial(list_page, more))

    def stat(self, uri: str) -> SourceFile | None:
        place = split_hf_uri(uri)
        if not place.path or place.path.endswith("/"):
            return None
        with map_hf_errors(uri):
            try:
                return self._stat(uri, place)
            except RemoteEntryNotFoundError:
                return None
            except RevisionNotFoundError:
                if not self._forget(place):
                    raise
        return self.stat(uri)

    def is_folder(self, uri: str) -> bool:
        return self._first_page(uri, split_hf_uri(uri), recursive=False) is not None

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        file = self.stat(uri)
        if file is None:
            raise NotFound(uri)
        getter = range_getter(file_url(split_hf_uri(uri), file.pin))

        def fetch(start: int, end: int) -> bytes:
            with map_hf_errors(uri):
                return self._call(lambda: getter.get(start, end))

        return file, RangedReader(uri, file.size, fetch, patience_s=PATIENCE_S)

    def _first_page(self, uri: str, place: HfUri, *, recursive: bool) -> Page | None:
        """The beginning of a folder's listing; None where there is no such folder."""
        with map_hf_errors(uri):
            try:
                url = tree_url(place, self._commit(place), place.path, recursive=recursive)
                return self._call(lambda: list_page(url))
            except RemoteEntryNotFoundError:
                return None
            except RevisionNotFoundError:
                if not self._forget(place):
                    raise
        return self._first_page(uri, place, recursive=recursive)

    def _stat(self, uri: str, place: HfUri) -> SourceFile:
        pin = self._pins.get(place.root)
        found = self._call(lambda: stat_file(file_url(place, pin or place.revision)))
        if found.size is None or not found.etag or not found.commit_hash:
            raise BadAnswer("no size, no checksum or no commit for the file")
        if pin is None:
            self._pins[place.root] = pin = found.commit_hash
        return SourceFile(uri, found.size, _version(found.etag), pin)

    def _commit(self, place: HfUri) -> str:
        """The commit at which all below the root is read."""
        if place.root not in self._pins:
            commit = place.revision if place.is_pinned else self._call(lambda: resolve_commit(place))
            self._pins[place.root] = commit
        return self._pins[place.root]

    def _forget(self, place: HfUri) -> bool:
        """Forget a commit that is gone since its branch was rewritten; False where the user's own revision is missing.

        What the branch holds now is the planned file only where its checksum is the planned one, as everywhere.
        """
        return self._pins.pop(place.root, None) is not None and not place.is_pinned

    def _call(self, request: Callable[[], T]) -> T:
        return self._retry.call(request, hf_wait)


def stat_model(place: HfUri) -> tuple[int, str]:
    """The size of a model's file and the commit at which its revision stands now; raises `NotFound`."""
    with map_hf_errors(place.root, place):
        try:
            found = Retry().call(lambda: stat_file(file_url(place, place.revision)), hf_wait)
        except RemoteEntryNotFoundError as error:
            raise NotFound(place.root) from error
        if not found.size or not found.commit_hash:
            raise BadAnswer("no size or no commit for the file")
        return found.size, found.commit_hash


def read_model(place: HfUri) -> bytes:
    """A model's file whole; raises `NotFound`."""
    size, commit = stat_model(place)
    getter = range_getter(file_url(place, commit))
    with map_hf_errors(place.root, place):
        return Retry().call(lambda: getter.get(0, size), hf_wait)


def _version(checksum: str) -> str:
    return f"{'sha256' if len(checksum) == 64 else 'git'}:{checksum}"
