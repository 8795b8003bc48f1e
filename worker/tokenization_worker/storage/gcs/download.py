"""Reads the stored bytes of an object of Google Cloud Storage: all of them, checked, or a range.

They come in one read: between two reads the thread would wait 5 ms for a thread that computes.
"""

from __future__ import annotations

from typing import Any

import google_crc32c
from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import TemporaryError
from tokenization_worker.storage.gcs.client import READ_TIMEOUT_S, Blob, crc32c_number


class _Parts(list[bytes]):
    """What a download is written to: its parts as they come, without a copy."""

    def write(self, data: bytes) -> None:
        self.append(data)

    def seek(self, offset: int) -> None:
        """The client begins anew."""
        del offset  # it is 0
        self.clear()


def _download(blob: Blob, **how: Any) -> bytes:
    """The stored bytes, in one piece where nothing went wrong on the way."""
    parts = _Parts()
    blob.download_to_file(parts, raw_download=True, single_shot_download=True, **how)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def download_whole(blob: Blob, uri: str, retry: Retry) -> bytes:
    """The object's stored bytes, checked against its CRC32C (and so its size); a missing one raises as `blob` does."""
    data = _download(blob, checksum="crc32c", retry=retry, timeout=READ_TIMEOUT_S)
    if crc32c_number(blob.crc32c) != google_crc32c.value(data):
        raise TemporaryError(
            "StorageFailed",
            f"{uri}: {len(data)} bytes arrived with a wrong checksum, or without one: expected {blob.crc32c}",
            next_step="start the same command again",
        )
    return data


def download_range(
    blob: Blob, uri: str, start: int, end: int, retry: Retry, timeout_s: float = READ_TIMEOUT_S
) -> bytes:
    """Stored bytes [start, end), fewer where the object ends before; `end` is greater than `start`."""
    try:
        data = _download(blob, start=start, end=end - 1, checksum=None, retry=retry, timeout=timeout_s)
    except exceptions.RequestRangeNotSatisfiable:
        return b""
    if len(data) > end - start:
        raise TemporaryError(
            "StorageFailed",
            f"{uri}: asked for bytes [{start}, {end}), got {len(data)} bytes",
            next_step="start the same command again",
        )
    return data
