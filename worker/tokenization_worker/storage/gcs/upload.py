"""Writes one object to Google Cloud Storage: atomically, and only over the expected version.

Up to one chunk goes in a single request, anything larger through a resumable session, of which nothing is
visible before its last request; a chunk is sent while the next one is written. Memory: two chunks. Every request
names the expected generation, so all may be repeated, and are by the store's retry (`client.RETRY`); a repeated
request that finds its own earlier success (412) is told from a lost race by size and CRC32C: the same content counts as
this write's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol, Self

import google_crc32c
import requests
from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import TemporaryError, TokenizationError
from tokenization_worker.storage.base import MARK_ABSENT, Entry, PreconditionFailed
from tokenization_worker.storage.gcs.client import Blob, crc32c_number, crc32c_text, http_error, keep_connections
from tokenization_worker.storage.gcs.errors import DELETE, WRITE, map_gcs_errors
from tokenization_worker.storage.prefetch import PATIENCE_S, start_call, take_result

CHUNK_BYTES = 8 << 20
"""Bytes of a request: the least that the service's documentation recommends; a multiple of 256 KiB."""

_TIMEOUT_S = 60

_CANCEL_PATIENCE_S = 5.0
"""How long an upload that is given up waits for the chunk under way, to be cancelled after it."""

_CONTENT_TYPE = "application/octet-stream"
_PERSISTED = re.compile(r"bytes=0-(\d+)")


class Target(Protocol):
    """The store an upload belongs to."""

    uri: str
    retry: Retry

    def blob(self, path: str) -> Blob: ...
    def stat(self, path: str) -> Entry | None: ...


class GcsUpload:
    """Bytes on their way to an object; see `base.Upload`.

    `write` finds out early when something unexpected is there, and then moves no more bytes; `commit` says so. An
    error in sending a chunk is raised where the next one is to be sent, or by `commit`.
    """

    def __init__(self, store: Target, path: str, expect: str) -> None:
        self._store = store
        self._path = path
        self._uri = f"{store.uri}/{path}"
        self._expect = expect
        self._buffer = bytearray()
        self._size = 0
        self._crc32c = 0
        self._session: _Session | None = None
        self._sending: Future[None] | None = None
        self._refused = False
        self._version = ""
        self.is_ours = False

    @property
    def _generation(self) -> int:
        return 0 if self._expect == MARK_ABSENT else int(self._expect)

    def write(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data).cast("B")
        while view:
            if len(self._buffer) == CHUNK_BYTES:
                self._send_chunk()
            room = CHUNK_BYTES - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]

    def commit(self, metadata: Mapping[str, str] | None = None) -> Entry:
        self._wait_for_chunk()
        payload = self._take_buffer()
        with map_gcs_errors(WRITE, self._uri):
            try:
                if self._refused:
                    raise http_error(412, "found before the upload")
                entry = self._finish(payload, dict(metadata or {}))
            except exceptions.PreconditionFailed as error:
                found = self._store.stat(self._path)
                if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):
                    raise PreconditionFailed(self._path) from error
                return found
        self._session = None
        if (entry.size, entry.crc32c) != (self._size, self._crc32c):
            entry = self._stat_again(entry)
        self._version = entry.version
        self.is_ours = True
        return entry

    def retract(self) -> None:
        if self.is_ours:
            delete_generation(self._store.blob(self._path), self._uri, self._version, self._store.retry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._buffer.clear()
        if self._sending is not None:
            wait([self._sending], timeout=_CANCEL_PATIENCE_S)
            self._sending.add_done_callback(lambda _: self._cancel())  # at once, if it has ended
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()
            self._session = None

    def _take_buffer(self) -> bytes:
        payload = bytes(self._buffer)
        self._buffer.clear()
        self._size += len(payload)
        self._crc32c = google_crc32c.extend(self._crc32c, payload)
        return payload

    def _send_chunk(self) -> None:
        self._wait_for_chunk()
        payload = self._take_buffer()
        if not self._refused:
            self._sending = start_call(lambda: self._send(payload))

    def _wait_for_chunk(self) -> None:
        """Until the chunk under way has arrived; raises what became of it."""
        sending, self._sending = self._sending, None
        if sending is not None:
            take_result(sending, f"{self._uri}: sending a chunk", PATIENCE_S)

    def _send(self, payload: bytes) -> None:
        with map_gcs_errors(WRITE, self._uri):
            try:
                if self._session is None:
                    self._session = self._open_session()
                self._session.send(payload)
            except exceptions.PreconditionFailed:
                self._refused = True

    def _open_session(self) -> _Session:
        found = self._store.stat(self._path)
        if (MARK_ABSENT if found is None else found.version) != self._expect:
            raise http_error(412, "found before the upload")
        url = self._store.blob(self._path).create_resumable_upload_session(
            content_type=_CONTENT_TYPE, if_generation_match=self._generation, checksum=None, retry=self._store.retry
        )
        return _Session(url, self._uri, self._store.retry)

    def _finish(self, payload: bytes, metadata: dict[str, str]) -> Entry:
        if self._session is not None:
            properties = self._session.finish(payload, self._size, self._crc32c, metadata)
            return Entry(
                self._path,
                int(properties["size"]),
                str(properties["generation"]),
                properties.get("metadata", {}),
                crc32c_number(properties.get("crc32c")),
            )
        blob = self._store.blob(self._path)
        blob.metadata = metadata or None
        blob.upload_from_string(
            payload,
            content_type=_CONTENT_TYPE,
            if_generation_match=self._generation,
            checksum="crc32c",
            retry=self._store.retry,
        )
        return entry_of(self._path, blob)

    def _stat_again(self, answer: Entry) -> Entry:
        """The object, where only the answer was wrong; raises `TemporaryError` where it is not what was sent.

        One answer is not enough to take it away: another run may have seen it, and trust it already.
        """
        found = self._store.stat(self._path)
        if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):
            raise self._mismatched(answer)
        return found

    def _mismatched(self, entry: Entry) -> TemporaryError:
        """The error for an object that is not what was sent; takes it away again, that generation and no other."""
        message = (
            f"{self._uri}: sent {self._size} bytes with CRC32C {self._crc32c:08x}, "
            f"the store has {entry.size} bytes with {'none' if entry.crc32c is None else f'{entry.crc32c:08x}'}"
        )
        try:
            delete_generation(self._store.blob(self._path), self._uri, entry.version, self._store.retry)
        except TokenizationError as error:
            message += f"; tokjob could not remove it (generation {entry.version}): {error.message}"
        return TemporaryError("StorageFailed", message, next_step="start the same command again")


class _Session:
    """A resumable upload. Its URL is a secret that stands for the permission to write this one object."""

    def __init__(self, url: str, uri: str, retry: Retry) -> None:
        self._url = url
        self._uri = uri
        self._retry = retry
        self._offset = 0

    def send(self, data: bytes) -> None:
        """Send bytes that others follow: a multiple of 256 KiB."""
        end = self._offset + len(data)
        while self._offset < end:
            before = self._offset
            self._retry(self._put)(data, None, {})
            data = data[self._offset - before :]

    def finish(self, data: bytes, size: int, crc32c: int, metadata: Mapping[str, str]) -> dict[str, Any]:
        """Send the last bytes and make the object visible; returns its properties."""
        headers = {f"x-goog-meta-{key}": value for key, value in metadata.items()}
        headers["x-goog-hash"] = f"crc32c={crc32c_text(crc32c)}"
        while True:
            before = self._offset
            response = self._retry(self._put)(data, size, headers)
            if response.status_code != HTTPStatus.PERMANENT_REDIRECT:
                properties: dict[str, Any] = response.json()
                return properties
            data = data[self._offset - before :]

    def cancel(self) -> None:
        """Tell the service that no more will come; without that it forgets the bytes after a week."""
        with suppress(requests.RequestException):
            _http(os.getpid()).delete(self._url, timeout=_CANCEL_PATIENCE_S)

    def _put(self, data: bytes, size: int | None, headers: Mapping[str, str]) -> requests.Response:
        """One request, from `self._offset`; moves that to what the service has kept, which may be less.

        Bytes that it has already (a repeated request) it ignores.
        """
        total = "*" if size is None else str(size)
        span = f"{self._offset}-{self._offset + len(data) - 1}" if data else "*"
        response = _http(os.getpid()).put(
            self._url,
            data=data,
            headers={"content-range": f"bytes {span}/{total}", "content-type": _CONTENT_TYPE, **headers},
            timeout=_TIMEOUT_S,
            allow_redirects=False,
        )
        if response.status_code in (HTTPStatus.OK, HTTPStatus.CREATED):
            return response
        if response.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise TemporaryError(
                "StorageFailed",
                f"{self._uri}: the store lost the upload at byte {self._offset}",
                next_step="start the same command again; finished work is kept",
            )
        if response.status_code != HTTPStatus.PERMANENT_REDIRECT:
            raise http_error(response.status_code, response.text[:500], response=response)
        kept = _PERSISTED.fullmatch(response.headers.get("range", ""))
        persisted = int(kept[1]) + 1 if kept else 0
        if not self._offset < persisted <= self._offset + len(data):
            raise http_error(503, f"the store has {persisted} bytes, {self._offset} were there before")
        self._offset = persisted
        return response


@cache
def _http(pid: int) -> requests.Session:
    del pid  # connections are not shared with a forked child
    session = requests.Session()
    keep_connections(session)
    return session


def entry_of(path: str, blob: Blob) -> Entry:
    """What the store says of an object that was just listed, looked at or written."""
    return Entry(path, int(blob.size), str(blob.generation), dict(blob.metadata or {}), crc32c_number(blob.crc32c))


def delete_generation(blob: Blob, uri: str, version: str, retry: Retry) -> None:
    """Delete the object if it still has this generation; gone or replaced is fine."""
    with map_gcs_errors(DELETE, uri), suppress(exceptions.NotFound, exceptions.PreconditionFailed):
        blob.delete(if_generation_match=int(version), retry=retry)
