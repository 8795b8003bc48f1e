"""Source files in S3, and in stores that speak its protocol.

A file's version is its ETag: of one upload the MD5 of the content, of an upload in parts a digest of theirs, so the
same content counts as another file where it was cut otherwise. A stream reads the object that was there when it was
opened: every request names the ETag.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import RangedReader
from tokenization_worker.storage.retry import Retry
from tokenization_worker.storage.s3.client import (
    CONNECTIONS,
    LIST,
    READ,
    ClientError,
    map_s3_errors,
    request_payer,
    s3_client,
    s3_wait,
    split_s3_uri,
    status_of,
)
from tokenization_worker.storage.source_file import SourceFile


class S3Source:
    """URIs are `s3://bucket/key`."""

    connections = CONNECTIONS

    def __init__(self, *, retry: Retry | None = None) -> None:
        self._retry = retry or Retry()

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        bucket, prefix = split_s3_uri(pattern.folder)
        wanted = {"Bucket": bucket, "Prefix": prefix} | ({"Delimiter": "/"} if pattern.is_flat else {})
        page: dict[str, Any] = {}
        while not page or page.get("IsTruncated"):
            more = {"ContinuationToken": page["NextContinuationToken"]} if page else {}
            page = self._list(pattern.folder, wanted | more)
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):  # such objects stand for folders
                    yield _file_of(f"s3://{bucket}/{item['Key']}", item["Size"], item)

    def stat(self, uri: str) -> SourceFile | None:
        bucket, key = split_s3_uri(uri)
        if not key or key.endswith("/"):
            return None
        with map_s3_errors(READ, uri):
            try:
                found = self._retry.call(
                    lambda: s3_client().head_object(Bucket=bucket, Key=key, **request_payer()), s3_wait
                )
            except ClientError as error:
                if status_of(error) != 404:
                    raise
                return None
            return _file_of(uri, found["ContentLength"], found)

    def is_folder(self, uri: str) -> bool:
        bucket, key = split_s3_uri(uri)
        folder = key.rstrip("/") + "/" if key else ""
        return bool(self._list(uri, {"Bucket": bucket, "Prefix": folder, "MaxKeys": 1}).get("Contents"))

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        file = self.stat(uri)
        if file is None:
            raise NotFound(uri)
        return file, RangedReader(uri, file.size, lambda start, end: self._fetch(file, start, end))

    def _list(self, uri: str, wanted: dict[str, Any]) -> dict[str, Any]:
        with map_s3_errors(LIST, uri):
            page: dict[str, Any] = self._retry.call(
                lambda: s3_client().list_objects_v2(**wanted, **request_payer()), s3_wait
            )
            return page

    def _fetch(self, file: SourceFile, start: int, end: int) -> bytes:
        bucket, key = split_s3_uri(file.uri)
        wanted = {
            "Bucket": bucket,
            "Key": key,
            "Range": f"bytes={start}-{end - 1}",
            "IfMatch": f'"{file.version.removeprefix(_ETAG)}"',
        }

        def read() -> bytes:
            found = s3_client().get_object(**wanted, **request_payer())
            with closing(found["Body"]) as body:
                if found["ContentLength"] != end - start:  # before any of it is read: it may be the whole object
                    raise TemporaryError(
                        "StorageFailed",
                        f"{file.uri}: asked for bytes [{start}, {end}), got {found['ContentLength']} bytes",
                        next_step="start the same command again",
                    )
                data: bytes = body.read()
                return data

        with map_s3_errors(READ, file.uri):
            try:
                return self._retry.call(read, s3_wait)
            except ClientError as error:
                if status_of(error) not in (404, 412, 416):
                    raise
                raise ChangedError(
                    "SourceChanged",
                    f"{file.uri} was replaced or deleted while it was read: {file.version} no longer exists",
                    next_step="put the planned file back, or start a new run on the new one",
                ) from error


_ETAG = "etag:"


def _file_of(uri: str, size: int, described: dict[str, Any]) -> SourceFile:
    return SourceFile(uri, size, _ETAG + described["ETag"].strip('"'))
