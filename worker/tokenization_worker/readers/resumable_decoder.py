"""Continues `decompress.read_blocks` from any offset of a gzip or zstd file, for the slices of a file that was cut.

Such a file can only be read from its start: a slice that begins further on inflates all before it and throws it
away. The decoder that an earlier slice has left behind is therefore set aside, so that a process which reads the
slices of a file one after the other inflates it once. Invariant: the bytes are the same either way. Streams are not
kept open: whoever goes on brings one, and has seen that the file is still the same.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator

from tokenization_worker.readers.decompress import StoredBytes, read_blocks
from tokenization_worker.readers.document_batch import Compression, FileSlice
from tokenization_worker.storage.base import ByteReader

KEPT_BYTES = 16 << 20
"""What may be kept for the next slice: the rest of the block that holds the border, and the blocks that its last
record needed. A longer record makes the next slice inflate from the start again."""


MOST_WINDOW_BYTES = 128 << 20
"""A decoder with a larger window (`zstd --long=28` and up) is not set aside: the next slice inflates from the start."""


class Content:
    """The decompressed content of one file, read forwards; see `read_blocks` for what it raises.

    `uri`: for messages.
    """

    def __init__(self, stream: ByteReader, compression: Compression, uri: str = "FILE") -> None:
        self._stored = StoredBytes(stream, uri=uri)
        self._blocks = read_blocks(self._stored, compression)
        self._window: deque[bytes] = deque()  # blocks that are there, given out already or not
        self._position = 0  # of the first block in the window, or of the next one

    def go_on(self, stream: ByteReader) -> None:
        """Take what is still to be read from `stream`, of the same file."""
        self._stored.go_on(stream)

    @property
    def window_bytes(self) -> int:
        """What the decoder holds to copy from."""
        return self._stored.window_bytes

    def head(self) -> bytes:
        """The first block, where nothing has been read yet; b"" for an empty file."""
        if not self._window and (block := next(self._blocks, b"")):
            self._window.append(block)
        return self._window[0] if self._window else b""

    def reaches(self, start: int) -> bool:
        """Whether the content from `start` on can still be had."""
        return self._position <= start

    def read(self, start: int, keep_from: int | None) -> Iterator[bytes]:
        """Blocks from `start` on; those from `keep_from` on can be read again (None: none can)."""
        keep = sys.maxsize if keep_from is None else keep_from
        position, number, kept = self._position, 0, 0
        while number < len(self._window) or self._fetch():
            block = self._window[number]
            end = position + len(block)
            if end <= keep:
                self._window.popleft()
                self._position = end
            else:
                number += 1
                kept += len(block)
            if kept > KEPT_BYTES:
                for _ in range(number):
                    self._window.popleft()
                self._position, keep, number, kept = end, sys.maxsize, 0, 0
            if end > start:
                yield block[start - position :] if position < start else block
            position = end

    def _fetch(self) -> bool:
        block = next(self._blocks, None)
        if block is not None:
            self._window.append(block)
        return block is not None


_Identity = tuple[str, int, str, int]


class SetAside(threading.local):
    """The content that the last slice has left, if any: of one file, for the thread that read it.

    Holds a decoder with its window, also while this process builds a shard: so one of a moderate window only.
    """

    def __init__(self) -> None:
        self._left: tuple[_Identity, Content] | None = None

    def take(self, source: FileSlice, start: int) -> Content | None:
        """The content of `source`'s file from `start` on; nothing is set aside afterwards, whatever there was."""
        left, self._left = self._left, None
        return left[1] if left is not None and left[0] == _identity(source) and left[1].reaches(start) else None

    def put(self, source: FileSlice, content: Content) -> None:
        if content.window_bytes <= MOST_WINDOW_BYTES:
            self._left = (_identity(source), content)


def _identity(source: FileSlice) -> _Identity:
    return source.uri, source.size, source.version, source.ctime_ns
