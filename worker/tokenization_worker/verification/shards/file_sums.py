"""Reads one file of a shard and compares its size and checksums with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import google_crc32c

from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.advance import OnAdvance
from tokenization_worker.verification.claims import ClaimedFile
from tokenization_worker.verification.report import Fault, Finding

_CHUNK_BYTES = 4 << 20


def read_file(
    store: Store, file: ClaimedFile, take: Callable[[bytes], object], on_advance: OnAdvance
) -> ClaimedFile | None:
    """The file as its bytes are; None if it is missing. `take` gets them in order, some MiB at a time."""
    if store.stat(file.path) is None:
        return None
    crc, digest, size = 0, sha256(), 0
    try:
        while chunk := store.read_range(file.path, size, size + _CHUNK_BYTES):
            crc = google_crc32c.extend(crc, chunk)
            digest.update(chunk)
            take(chunk)
            size += len(chunk)
            on_advance(size)
    except NotFound:
        return None
    return ClaimedFile(file.format, file.path, size, f"{crc:08x}", digest.hexdigest())


def checksum_findings(listed: ClaimedFile, found: ClaimedFile) -> Iterator[Finding]:
    """The checksums that differ."""
    for name, expected, is_now in (("CRC32C", listed.crc32c, found.crc32c), ("SHA-256", listed.sha256, found.sha256)):
        if expected != is_now:
            yield Finding(Fault.SHARD_CHECKSUM, f"{name} {expected}", is_now, listed.path)
