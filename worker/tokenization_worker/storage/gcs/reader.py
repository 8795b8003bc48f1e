"""Reads one generation of a source file in Google Cloud Storage, even if the name is overwritten meanwhile.

A file that is read from its start to its end is compared with its CRC32C before its last bytes are handed out; the
service has none for a part of one.
"""

from __future__ import annotations

import google_crc32c
from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.storage.gcs.client import READ_TIMEOUT_S, gcs_bucket, split_gcs_uri
from tokenization_worker.storage.gcs.download import download_range
from tokenization_worker.storage.gcs.errors import READ_SOURCE, map_gcs_errors
from tokenization_worker.storage.prefetch import PATIENCE_S, RangedReader
from tokenization_worker.storage.source_file import SourceFile


class GcsReader(RangedReader):
    """One generation of an object as a raw stream; `crc32c` is of all of it, where it is known.

    Raises `ChangedError` when that generation is gone.
    """

    def __init__(
        self,
        file: SourceFile,
        generation: int,
        crc32c: int | None,
        retry: Retry,
        *,
        timeout_s: float = READ_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(file.uri, file.size, self._fetch_generation, patience_s=patience_s)
        self._generation = generation
        self._retry = retry
        self._timeout_s = timeout_s
        self._crc32c = crc32c
        self._crc32c_so_far = 0
        self._summed_bytes = 0

    def _arrived(self, start: int, data: bytes) -> None:
        """Sum the file up as far as it was read without a gap; raise `TemporaryError` at its end if it is another."""
        if start == 0:
            self._crc32c_so_far = self._summed_bytes = 0
        if start != self._summed_bytes:
            return
        self._crc32c_so_far = google_crc32c.extend(self._crc32c_so_far, data)
        self._summed_bytes += len(data)
        if self._summed_bytes == self._size and self._crc32c not in (None, self._crc32c_so_far):
            raise TemporaryError(
                "StorageFailed",
                f"{self._uri}: the {self._size} bytes that arrived have CRC32C {self._crc32c_so_far:08x}, expected "
                f"{self._crc32c:08x}: they changed during the transfer",
                next_step="start the same command again; if this error comes back, check the memory of this machine",
            )

    def _fetch_generation(self, start: int, end: int) -> bytes:
        uri = self._uri
        bucket, name = split_gcs_uri(uri)
        with map_gcs_errors(READ_SOURCE, uri):
            blob = gcs_bucket(bucket).blob(name, generation=self._generation)
            try:
                data = download_range(blob, uri, start, end, self._retry, self._timeout_s)
            except exceptions.NotFound as error:
                raise ChangedError(
                    "SourceChanged",
                    f"{uri} was replaced or deleted while it was read: generation {self._generation} no longer exists",
                    next_step="put the planned file back, or start a new run on the new one",
                ) from error
        if len(data) != end - start:
            raise TemporaryError(
                "StorageFailed",
                f"{uri}: asked for bytes [{start}, {end}), got {len(data)} bytes",
                next_step="start the same command again",
            )
        return data
