"""Decompresses a zstd file for `source`, frame by frame.

What a very small frame holds is remembered: where the same bytes come again nothing is decoded, so that a million
frames of nothing cost seconds. Skippable frames are passed over, as the format says. Raises what the decoder raises.
"""

from __future__ import annotations

from typing import BinaryIO

from tokenization_worker.verification.facts import zstd

_STORED_BYTES = 1 << 20
_LONGEST_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}
_SMALL_BYTES = 32
_MOST_SMALL = 1000


class ZstdContent:
    """Reads like a binary file; holds a block of stored bytes and the decoder's window."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._block = memoryview(b"")
        self._decoder: zstd.ZstdDecompressor | None = None
        self._length = 0  # of the open frame, where its end is in the block
        self._small: dict[bytes, bytes] = {}

    def read(self, size: int) -> bytes:
        """Some bytes, seldom more than `size`; none only at the end of the last frame."""
        while self._decoder is not None or self._fill():
            part = self._open_frame() if self._decoder is None else self._go_on(self._decoder, size)
            if part:
                return part
        return b""

    def _fill(self) -> bool:
        if not self._block:
            self._block = memoryview(self._stored.read(_STORED_BYTES))
        return bool(self._block)

    def _open_frame(self) -> bytes:
        """Pass over a skippable frame, give the content of a small one, or begin to decode."""
        try:
            length = zstd.get_frame_size(self._block)
        except zstd.ZstdError:  # it is not in the block whole, or it is none: the decoder will say
            length = 0
        if length and self._block[0] >> 4 == 5 and bytes(self._block[1:4]) == b"\x2a\x4d\x18":
            self._block = self._block[length:]
            return b""
        if not 0 < length <= _SMALL_BYTES:
            self._decoder, self._length = zstd.ZstdDecompressor(options=_LONGEST_WINDOW), length
            return b""
        frame = bytes(self._block[:length])
        content = self._small.get(frame)
        if content is None:
            content = zstd.decompress(frame, options=_LONGEST_WINDOW)
            if len(self._small) < _MOST_SMALL and len(content) < _SMALL_BYTES:
                self._small[frame] = content
        self._block = self._block[length:]
        return content

    def _go_on(self, decoder: zstd.ZstdDecompressor, size: int) -> bytes:
        data = memoryview(b"")
        if decoder.needs_input:
            if not self._fill():
                raise EOFError("the file ends inside a zstd frame")
            end = self._length or len(self._block)
            data, self._block = self._block[:end], self._block[end:]
        part = decoder.decompress(data, size)
        if decoder.eof:
            self._block = memoryview(decoder.unused_data) if decoder.unused_data else self._block
            self._decoder = None
        return part
