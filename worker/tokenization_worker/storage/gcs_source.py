"""Source files in Google Cloud Storage.

A file's version is its content checksum, so that a copy elsewhere in time is the same file. A stream reads the
generation that was there when it was opened, whatever is written to the name meanwhile.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.gcs_client import (
    LIST_SOURCE,
    READ_SOURCE,
    RETRY,
    Blob,
    download_range,
    gcs_client,
    is_missing_bucket,
    map_gcs_errors,
    split_gcs_uri,
)
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.source_file import SourceFile

READ_BYTES = 8 << 20
"""Bytes of a ranged read: far more than the 50 ms of a request are worth, and little memory."""

_FIELDS = "items(name,size,generation,crc32c),nextPageToken"


class GcsSource:
    """URIs are `gs://bucket/name`."""

    def __init__(self, *, retry: Retry = RETRY) -> None:
        self._retry = retry

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        bucket, name = split_gcs_uri(pattern.folder)
        with map_gcs_errors(LIST_SOURCE, pattern.folder):
            for blob in gcs_client().list_blobs(bucket, prefix=name, fields=_FIELDS, retry=self._retry):
                if not blob.name.endswith("/"):  # such objects stand for folders
                    yield _file_of(f"gs://{bucket}/{blob.name}", blob)

    def stat(self, uri: str) -> SourceFile | None:
        blob = self._look_at(uri)
        return None if blob is None else _file_of(uri, blob)

    def is_folder(self, uri: str) -> bool:
        bucket, name = split_gcs_uri(uri)
        folder = name.rstrip("/") + "/" if name else ""
        with map_gcs_errors(LIST_SOURCE, uri):
            found = gcs_client().list_blobs(bucket, prefix=folder, max_results=1, fields=_FIELDS, retry=self._retry)
            return any(True for _ in found)

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        blob = self._look_at(uri)
        if blob is None:
            raise NotFound(uri)
        file = _file_of(uri, blob)
        return file, GcsReader(file, int(blob.generation), self._retry)

    def _look_at(self, uri: str) -> Blob | None:
        bucket, name = split_gcs_uri(uri)
        if not name or name.endswith("/"):
            return None
        with map_gcs_errors(READ_SOURCE, uri):
            blob = gcs_client().bucket(bucket).blob(name)
            try:
                blob.reload(retry=self._retry)
            except exceptions.NotFound as error:
                if is_missing_bucket(error):
                    raise
                return None
            return blob


def _file_of(uri: str, blob: Blob) -> SourceFile:
    version = f"crc32c:{blob.crc32c}" if blob.crc32c else f"generation:{blob.generation}"
    return SourceFile(uri, int(blob.size), version)


class GcsReader(io.RawIOBase):
    """One generation of an object as a raw stream. A read takes what is buffered, else one ranged request.

    Raises `ChangedError` when that generation is gone. Memory: `READ_BYTES`, or the size of a larger read.
    """

    def __init__(self, file: SourceFile, generation: int, retry: Retry) -> None:
        self._file = file
        self._generation = generation
        self._retry = retry
        self._position = 0
        self._buffer = b""
        self._buffer_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self._file.uri}: cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        if self.closed:
            raise ValueError(f"{self._file.uri}: read of a closed stream")
        if size < 0:
            return self.readall()
        skip = self._position - self._buffer_start
        if not 0 <= skip < len(self._buffer):
            end = min(self._position + max(size, READ_BYTES), self._file.size)
            if size == 0 or self._position >= end:
                return b""
            self._buffer_start, skip = self._position, 0
            self._buffer = self._fetch(self._position, end)
        data = self._buffer[skip : skip + size]
        self._position += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, start: int, end: int) -> bytes:
        uri = self._file.uri
        bucket, name = split_gcs_uri(uri)
        with map_gcs_errors(READ_SOURCE, uri):
            blob = gcs_client().bucket(bucket).blob(name, generation=self._generation)
            try:
                data = download_range(blob, uri, start, end, self._retry)
            except exceptions.NotFound as error:
                raise ChangedError(
                    "SourceChanged",
                    f"{uri} was replaced or deleted while it was read: generation {self._generation} is gone",
                    next_step="put the planned file back, or start a new run on the new one",
                ) from error
        if len(data) != end - start:
            raise TemporaryError(
                "StorageFailed",
                f"{uri}: asked for bytes [{start}, {end}), got {len(data)} bytes",
                next_step="start the same command again",
            )
        return data
