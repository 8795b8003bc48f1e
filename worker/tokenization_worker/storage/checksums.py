"""The CRC32C of an object, from its bytes."""

from __future__ import annotations

import google_crc32c

from tokenization_worker.storage.base import Store

CHUNK_BYTES = 1 << 20


def crc32c_of_bytes(store: Store, path: str, size: int) -> int:
    """Of the first `size` bytes of an object, which are read in chunks; raises `NotFound`."""
    crc = 0
    for start in range(0, size, CHUNK_BYTES):
        crc = google_crc32c.extend(crc, store.read_range(path, start, min(size, start + CHUNK_BYTES)))
    return crc
