"""Objects below a prefix of a Google Cloud Storage bucket.

Invariant: an object is written over nothing, or over the one generation its writer names, and the service
decides which writer that is (`if_generation_match`). A version is a generation as text. Uploads are in
`upload`, the client and its errors in `client`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import starmap
from pathlib import Path

from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import TemporaryError
from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound
from tokenization_worker.storage.gcs.client import (
    CONNECTIONS,
    RETRY,
    Blob,
    gcs_bucket,
    gcs_client,
    service_clock,
    split_gcs_uri,
)
from tokenization_worker.storage.gcs.download import download_range, download_whole
from tokenization_worker.storage.gcs.errors import LIST, READ, is_missing_bucket, map_gcs_errors
from tokenization_worker.storage.gcs.upload import GcsUpload, delete_generation, entry_of
from tokenization_worker.storage.heartbeat import DEAD_AFTER_S, Heartbeat
from tokenization_worker.storage.prefetch import Range, RangesAhead, join_ranges
from tokenization_worker.storage.reserved import ALIVE, LEDGER

BLOCK_BYTES = 4 << 20
"""Neighbouring ranges are read together up to this size."""

AHEAD_BYTES = 16 << 20
"""Under way at once, unless a single range is larger."""

REQUESTS_AHEAD = 16
"""Requests under way at once: ranges of a small split lie far apart, and each costs the time of a request."""

_FIELDS = "items(name,size,generation,crc32c,metadata),nextPageToken"


class GcsStore:
    """A bucket prefix. Holds no client, so it may be pickled and used after a fork."""

    connections = CONNECTIONS

    def __init__(self, uri: str, *, retry: Retry = RETRY) -> None:
        self.uri = uri.rstrip("/")
        self.retry = retry
        self._bucket, prefix = split_gcs_uri(self.uri)
        self._prefix = f"{prefix}/" if prefix else ""

    def blob(self, path: str) -> Blob:
        """The client's handle of an object, as yet without properties."""
        return gcs_bucket(self._bucket).blob(self._prefix + path)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with map_gcs_errors(LIST, f"{self.uri}/{prefix}"):
            found = gcs_client().list_blobs(
                gcs_bucket(self._bucket), prefix=self._prefix + prefix, fields=_FIELDS, retry=self.retry
            )
            for blob in found:
                if not blob.name.endswith("/"):  # such objects stand for folders
                    yield entry_of(blob.name[len(self._prefix) :], blob)

    def stat(self, path: str) -> Entry | None:
        with map_gcs_errors(READ, f"{self.uri}/{path}"):
            blob = self.blob(path)
            try:
                blob.reload(retry=self.retry)
            except exceptions.NotFound as error:
                if is_missing_bucket(error):
                    raise
                return None
            return entry_of(path, blob)

    def read(self, path: str) -> bytes:
        uri = f"{self.uri}/{path}"
        with map_gcs_errors(READ, uri):
            try:
                return download_whole(self.blob(path), uri, self.retry)
            except exceptions.NotFound as error:
                if is_missing_bucket(error):
                    raise
                raise NotFound(path) from error

    def read_range(self, path: str, start: int, end: int) -> bytes:
        if start >= end:
            if self.stat(path) is None:
                raise NotFound(path)
            return b""
        uri = f"{self.uri}/{path}"
        with map_gcs_errors(READ, uri):
            try:
                data = download_range(self.blob(path), uri, start, end, self.retry)
            except exceptions.NotFound as error:
                if is_missing_bucket(error):
                    raise
                raise NotFound(path) from error
        if len(data) < end - start:
            self._require_end(path, start + len(data), start)
        return data

    def _require_end(self, path: str, found_end: int, start: int) -> None:
        """Raise unless a range that came short did so because the object ends there."""
        entry = self.stat(path)
        if entry is None:
            raise NotFound(path)
        if found_end != max(start, entry.size):
            raise TemporaryError(
                "StorageFailed",
                f"{self.uri}/{path}: a download from byte {start} ended at byte {found_end} of {entry.size}",
                next_step="start the same command again",
            )

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """As in `base.Store`; neighbours are read as one. Memory: `AHEAD_BYTES` and one of the ranges."""
        blocks = deque(join_ranges(starmap(Range, ranges), BLOCK_BYTES))
        ahead = RangesAhead(partial(self.read_range, path), f"{self.uri}/{path}")
        block, data = Range(0, 0), b""
        for start, end in ranges:
            if start >= block.end:
                begin_more(ahead, blocks)
                block = ahead.next or block
                data = ahead.take()
                begin_more(ahead, blocks)
            yield data[start - block.start : end - block.start]

    def upload(self, path: str, *, expect: str = MARK_ABSENT, durable: bool = True) -> GcsUpload:
        del durable  # everything that is committed here is
        return GcsUpload(self, path, expect)

    def delete(self, path: str, *, version: str | None = None) -> None:
        found = self.stat(path)  # a delete that names its generation may be repeated
        if found is not None and version in (None, found.version):
            delete_generation(self.blob(path), f"{self.uri}/{path}", found.version, self.retry)

    def discard(self, path: str) -> None:
        self.delete(path)

    def local_path(self, path: str) -> Path | None:
        del path
        return None

    def free_bytes(self) -> int | None:
        return None

    def showing_life(self) -> AbstractContextManager[object]:
        return Heartbeat(GcsStore(self.uri, retry=self.retry.with_timeout(0.0)))

    def has_live_writers(self) -> bool:
        """Whether a run has shown its life in the last minutes, by the store's clock: by its heartbeat, or, where beats
        fail and one is left, by what it has written to the ledger since."""
        beats = list(self._ages_s(ALIVE))
        return any(age_s < DEAD_AFTER_S for age_s in beats) or (
            bool(beats) and any(age_s < DEAD_AFTER_S for age_s in self._ages_s(LEDGER))
        )

    def _ages_s(self, prefix: str) -> Iterator[float]:
        """How long ago each object was written, by the store's clock."""
        with map_gcs_errors(LIST, f"{self.uri}/{prefix}"):
            found = gcs_client().list_blobs(
                gcs_bucket(self._bucket),
                prefix=self._prefix + prefix,
                fields="items(name,updated),nextPageToken",
                retry=self.retry,
            )
            for blob in found:
                if blob.updated is not None:
                    yield (service_clock().now() - blob.updated).total_seconds()

    def close_own_scratch(self) -> None:
        """Nothing to do: what was not committed is not there."""

    def close_scratch(self) -> None:
        """Nothing to do: what was not committed is not there."""


def begin_more(ahead: RangesAhead, blocks: deque[Range]) -> None:
    """Begin those of `blocks` that there is room for, and at least one."""
    while blocks and (
        not len(ahead) or (len(ahead) < REQUESTS_AHEAD and ahead.size_bytes + blocks[0].size <= AHEAD_BYTES)
    ):
        ahead.begin(blocks.popleft())
