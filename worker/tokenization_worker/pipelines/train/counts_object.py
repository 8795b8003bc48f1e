"""The scratch object of a counted range: one or more tables of pieces, each with its size and checksum.

A piece may stand in several tables: a full one is written and a new one begun. The object ends with how many pieces
were counted, so that one that was cut shows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np

from tokenization_worker.formats.base import ByteSink
from tokenization_worker.training.pieces import Pieces

_HEAD = struct.Struct("<QQI")
"""Before each table: its pieces, the bytes of their texts, and the CRC32C of what follows: ends i64, counts i64, texts.
Without pieces: the end, and what follows is the number of pieces in all tables, each as often as it was counted."""
_MAGIC = b"TOKCOUNT"
_NUMBER = 8


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
        self.pieces += pieces.total
        arrays = (pieces.ends.astype("<i8"), pieces.counts.astype("<i8"), pieces.text)
        self._put(len(pieces), len(pieces.text), b"".join(array.tobytes() for array in arrays))

    def finish(self) -> None:
        """Write the end."""
        self._put(0, 0, self.pieces.to_bytes(_NUMBER, "little"))

    def _put(self, n_pieces: int, size: int, data: bytes) -> None:
        self._sink.write(_HEAD.pack(n_pieces, size, google_crc32c.value(data)))
        self._sink.write(data)


def read_counts(data: bytes, pieces: int) -> Iterator[Pieces]:
    """The tables of an object; raises `ValueError` unless it is whole and holds this many pieces."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin as counts do")
    place = len(_MAGIC)
    while True:
        if place + _HEAD.size > len(data):
            raise ValueError(f"it ends at byte {len(data):,}, inside a table")
        n_pieces, size, checksum = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        part = data[place : place + (2 * _NUMBER * n_pieces + size or _NUMBER)]
        if google_crc32c.value(part) != checksum:
            raise ValueError(f"the table at byte {place:,} does not match its checksum")
        place += len(part)
        if not n_pieces:
            break
        ends, counts = np.frombuffer(part, "<i8", 2 * n_pieces).reshape(2, n_pieces)
        yield Pieces(np.frombuffer(part, np.uint8, size, 2 * _NUMBER * n_pieces), ends, counts)
    found = int.from_bytes(part, "little")
    if found != pieces or place != len(data):
        raise ValueError(f"it holds {found:,} pieces in {place:,} of {len(data):,} bytes, expected {pieces:,} pieces")
