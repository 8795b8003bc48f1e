"""Stores small records in object metadata, so that one listing replaces a read per object.

What counts is always the object. Metadata is believed where the store's own checksum says that it was written with
the very bytes that are there now; for everything else (a large record, a store without metadata, an object that
somebody has written again) the object is read. An object's metadata may have 8 KiB on Cloud Storage.
"""

from __future__ import annotations

import zlib
from binascii import a2b_base64, b2a_base64
from hashlib import sha256

import google_crc32c

from tokenization_worker.storage.base import Entry

_RECORD = "record"
_SHA256 = "sha256"
_CRC32C = "crc32c"

_MOST_CHARACTERS = 7 << 10
"""Of a record in metadata: it leaves room for what others may want to note there."""

_MOST_BYTES = 64 << 10
"""A record larger than this is not tried, and nothing that metadata unpacks to is larger."""


def record_metadata(data: bytes) -> dict[str, str]:
    """Metadata for an object of these bytes that holds them; none where they are too many."""
    if len(data) > _MOST_BYTES:
        return {}
    text = b2a_base64(zlib.compress(data), newline=False).decode()  # zstd is as small, and 3 times as slow to unpack
    return {_RECORD: text} if len(text) <= _MOST_CHARACTERS else {}


def record_of(entry: Entry) -> bytes | None:
    """The object's bytes, from its metadata; None where it has to be read."""
    text = entry.metadata.get(_RECORD)
    if text is None or entry.size > _MOST_BYTES:
        return None
    try:
        data = zlib.decompressobj().decompress(a2b_base64(text), max(1, entry.size))
    except (ValueError, zlib.error):
        return None
    return data if len(data) == entry.size and google_crc32c.value(data) == entry.crc32c else None


def digest_metadata(data: bytes) -> dict[str, str]:
    """Metadata for an object of these bytes that says their SHA-256."""
    return {_SHA256: sha256(data).hexdigest(), _CRC32C: f"{google_crc32c.value(data):08x}"}


def digest_of(entry: Entry) -> str | None:
    """The SHA-256 of the object's bytes, from its metadata; None where it has to be read."""
    if entry.crc32c is None or entry.metadata.get(_CRC32C) != f"{entry.crc32c:08x}":
        return None
    return entry.metadata.get(_SHA256)
