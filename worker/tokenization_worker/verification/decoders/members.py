"""Decompresses a gzip file for `source`, member by member (RFC 1952).

Zero bytes behind a member are padding, as for the gzip command, and are passed over at the speed of a scan, as names
and comments in a header are. A header longer than `_LONGEST_HEADER` is damage: no program writes such a one.
"""

from __future__ import annotations

import re
import zlib
from gzip import BadGzipFile
from typing import BinaryIO

_STORED_BYTES = 1 << 20
_FED_BYTES = 16 << 10
"""Given to the decoder at once: what it does not use it copies, for each of a million small members."""

_LONGEST_HEADER = 512 << 10
_EXTRA, _NAME, _COMMENT, _CHECKSUM = 4, 8, 16, 2
_ZEROS = re.compile(rb"\0*")


class GzipContent:
    """Reads like a binary file; holds a block of stored bytes and the decoder's window."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._block = b""
        self._at = 0  # of the first byte of the block that was not used
        self._decoder: zlib._Decompress | None = None
        self._header = b""  # of the open member
        self._crc = self._size = 0

    def read(self, size: int) -> bytes:
        """Some bytes, at most `size`; none only at the end of the last member."""
        while self._decoder is not None or self._open_member():
            if part := self._go_on(size):
                return part
        return b""

    def _fill(self) -> bool:
        """Whether there is a byte that was not used."""
        if self._at == len(self._block):
            self._block, self._at = self._stored.read(_STORED_BYTES), 0
        return bool(self._block)

    def _open_member(self) -> bool:
        """Read the next member's header; False where there is none."""
        while self._fill():
            self._at = _end_of_zeros(self._block, self._at)
            if self._at < len(self._block):
                self._read_header()
                self._decoder = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
                self._crc = self._size = 0
                return True
        return False

    def _read_header(self) -> None:
        self._header = b""
        magic = self._take(2)
        if magic != b"\x1f\x8b":
            raise BadGzipFile(f"{magic!r} stands where a gzip member should begin")
        method, flags = self._take(8)[:2]
        if method != 8:
            raise BadGzipFile(f"compression method {method} is unknown")
        if flags & _EXTRA:
            self._take(int.from_bytes(self._take(2), "little"))
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                self._pass_text()
        if flags & _CHECKSUM:
            found = zlib.crc32(self._header) & 0xFFFF
            if int.from_bytes(self._take(2), "little") != found:
                raise BadGzipFile("the header's checksum is wrong")
        self._header = b""

    def _take(self, size: int) -> bytes:
        """Exactly so many bytes, which are kept for the header's checksum."""
        parts = []
        while size:
            if not self._fill():
                raise EOFError("the file ends inside a gzip member")
            part = self._block[self._at : self._at + size]
            self._at += len(part)
            size -= len(part)
            parts.append(part)
        data = b"".join(parts)
        self._header += data
        if len(self._header) > _LONGEST_HEADER:
            raise BadGzipFile(f"the header of a member is longer than {_LONGEST_HEADER:,} bytes")
        return data

    def _pass_text(self) -> None:
        """To behind the next zero byte."""
        while self._fill():
            end = self._block.find(b"\0", self._at) + 1
            self._take((end or len(self._block)) - self._at)
            if end:
                return
        raise EOFError("the file ends inside the header of a gzip member")

    def _go_on(self, size: int) -> bytes:
        decoder = self._decoder
        if decoder is None or not self._fill():
            raise EOFError("the file ends inside a gzip member")
        data = self._block[self._at : self._at + _FED_BYTES]
        part = decoder.decompress(data, size)
        self._at += len(data) - len(decoder.unused_data if decoder.eof else decoder.unconsumed_tail)
        self._crc = zlib.crc32(part, self._crc)
        self._size += len(part)
        if decoder.eof:
            self._decoder = None
            self._header = b""
            expected = self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
            if self._take(8) != expected:
                raise BadGzipFile("checksum or length of a member is wrong")
        return part


def _end_of_zeros(data: bytes, begin: int) -> int:
    found = _ZEROS.match(data, begin)
    return found.end() if found else begin
