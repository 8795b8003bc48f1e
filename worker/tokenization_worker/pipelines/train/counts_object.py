"""The scratch object of a counted range: one or more tables of pieces, each with its length and checksum.

A piece may stand in several tables: a full one is written and a new one begun. The object ends with how many pieces
were counted, so that one that was cut shows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c

from tokenization_worker.formats.base import ByteSink
from tokenization_worker.training.pieces import Pieces

_HEAD = struct.Struct("<QI")
_MAGIC = b"TOKCOUNT"


class CountsWriter:
    """Writes tables to `sink`; `pieces`: counted in all of them."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self.pieces = 0
        sink.write(_MAGIC)

    def write(self, pieces: Pieces) -> None:
        """Append a table; an empty one is left out."""
        if not len(pieces):
            return
        data = pieces.to_bytes()
        self.pieces += pieces.total
        self._sink.write(_HEAD.pack(len(data), google_crc32c.value(data)))
        self._sink.write(data)

    def finish(self) -> None:
        """Write the end."""
        total = self.pieces.to_bytes(8, "little")
        self._sink.write(_HEAD.pack(0, google_crc32c.value(total)) + total)


def read_counts(data: bytes, pieces: int) -> Iterator[Pieces]:
    """The tables of an object; raises `ValueError` unless it is whole and holds this many pieces."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin as counts do")
    place = len(_MAGIC)
    while True:
        if place + _HEAD.size > len(data):
            raise ValueError(f"it ends at byte {len(data):,}, inside a table")
        size, checksum = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        part = data[place : place + (size or 8)]
        if google_crc32c.value(part) != checksum:
            raise ValueError(f"the table at byte {place:,} does not match its checksum")
        place += len(part)
        if not size:
            break
        yield Pieces.from_bytes(part)
    found = int.from_bytes(part, "little")
    if found != pieces or place != len(data):
        raise ValueError(f"it holds {found:,} pieces in {place:,} of {len(data):,} bytes, expected {pieces:,} pieces")
