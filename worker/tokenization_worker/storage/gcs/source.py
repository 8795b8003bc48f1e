"""Source files in Google Cloud Storage.

A file's version is its content checksum, so that a copy elsewhere in time is the same file. Reading is in
`reader`.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.gcs.client import (
    CONNECTIONS,
    READ_TIMEOUT_S,
    RETRY,
    Blob,
    crc32c_number,
    gcs_bucket,
    gcs_client,
    split_gcs_uri,
)
from tokenization_worker.storage.gcs.errors import LIST_SOURCE, READ_SOURCE, is_missing_bucket, map_gcs_errors
from tokenization_worker.storage.gcs.reader import GcsReader
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import PATIENCE_S
from tokenization_worker.storage.source_file import SourceFile

_FIELDS = "items(name,size,generation,crc32c),nextPageToken"


class GcsSource:
    """URIs are `gs://bucket/name`."""

    connections = CONNECTIONS

    def __init__(
        self, *, retry: Retry = RETRY, timeout_s: float = READ_TIMEOUT_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._retry = retry
        self._timeout_s = timeout_s
        self._patience_s = patience_s

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        bucket, name = split_gcs_uri(pattern.folder)
        with map_gcs_errors(LIST_SOURCE, pattern.folder):
            for blob in gcs_client().list_blobs(gcs_bucket(bucket), prefix=name, fields=_FIELDS, retry=self._retry):
                if not blob.name.endswith("/"):  # such objects stand for folders
                    yield _file_of(f"gs://{bucket}/{blob.name}", blob)

    def stat(self, uri: str) -> SourceFile | None:
        blob = self._stat(uri)
        return None if blob is None else _file_of(uri, blob)

    def is_folder(self, uri: str) -> bool:
        bucket, name = split_gcs_uri(uri)
        folder = name.rstrip("/") + "/" if name else ""
        with map_gcs_errors(LIST_SOURCE, uri):
            found = gcs_client().list_blobs(
                gcs_bucket(bucket), prefix=folder, max_results=1, fields=_FIELDS, retry=self._retry
            )
            return any(True for _ in found)

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        blob = self._stat(uri)
        if blob is None:
            raise NotFound(uri)
        file = _file_of(uri, blob)
        reader = GcsReader(
            file,
            int(blob.generation),
            crc32c_number(blob.crc32c),
            self._retry,
            timeout_s=self._timeout_s,
            patience_s=self._patience_s,
        )
        return file, reader

    def _stat(self, uri: str) -> Blob | None:
        bucket, name = split_gcs_uri(uri)
        if not name or name.endswith("/"):
            return None
        with map_gcs_errors(READ_SOURCE, uri):
            blob = gcs_bucket(bucket).blob(name)
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
