"""Stored bytes to decompressed blocks, with the errors of all decoders mapped to `CorruptFileError`.

Invariant: the blocks of a file concatenate to its whole decompressed content, or `CorruptFileError` is raised;
a file that ends early, fails a checksum or goes on after its end never passes. A block is never empty and
holds about `BLOCK_BYTES`, however many frames or members that takes and however far one frame expands.
Errors of the store itself pass through unchanged. What the bytes mean is left to `detect` and `record_splitter`.
"""

from __future__ import annotations

import gzip
import posixpath
import sys
import zlib
from collections.abc import Generator, Iterator
from typing import Protocol, cast

from isal import igzip, igzip_lib

from tokenization_worker.messages.commands import THEN, before_command, beside, shell_name
from tokenization_worker.readers.document_batch import WHAT_TO_DO, Compression, CorruptFileError, FileOutcome
from tokenization_worker.storage.base import ByteReader

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd  # the same module; other modules import it from here

BLOCK_BYTES = 1 << 20
"""Decompressed bytes of a block. 256 KiB is 10 % slower, 4 MiB no faster (zstd with orjson, 2026-11)."""

READ_BYTES = 512 << 10
"""Stored bytes asked for at a time."""

ZSTD_HEADER_BYTES = 18
"""Of a frame, at most (RFC 8878)."""

_SMALL_FRAME_BYTES = 64
_SMALL_CONTENT_BYTES = 1 << 10
_KNOWN_FRAMES = 4096
"""Frames so small that what they hold is remembered: a decoder of its own takes 18 us, and a file may hold a million
frames of nothing in 9 MB. Looking one up takes 1 us (2026-11-23)."""

_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}  # windows up to 2 GiB
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after one byte of 0x50..0x5f
_SINGLE_SEGMENT = 0x20
_GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error, cast(type[Exception], igzip_lib.IsalError))
_LONG_HEADER = (
    f"the header of a member, with the file's name and comment, is longer than {igzip.READ_BUFFER_SIZE:,} bytes: no "
    "program writes such a header"
)


class Readable(Protocol):
    """A raw stream: `read` may return fewer bytes than asked for, and `b""` only at the end."""

    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


class StoredBytes:
    """A raw stream that can be looked at before it is read, and that knows how much was taken from it.

    `read_bytes` caps one read, so that a reader of a file's head learns how many stored bytes it needed.
    `window_bytes`: what the decoder of these bytes holds to copy from, where that may be much. `uri`: for messages.
    """

    def __init__(self, stream: Readable, *, uri: str = "FILE", read_bytes: int = READ_BYTES) -> None:
        self._stream = stream
        self._head = b""
        self._read_bytes = read_bytes
        self.taken = 0
        self.uri = uri
        self.window_bytes = 0

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end of the file; they stay to be read."""
        parts = [self._head]
        missing = size - len(self._head)
        while missing > 0 and (part := self._stream.read(missing)):
            parts.append(part)
            missing -= len(part)
        self._head = b"".join(parts)
        return self._head[:size]

    def read(self, size: int = -1, /) -> bytes:
        """Between 1 and `read_bytes` bytes, or `b""` at the end."""
        most = min(size, self._read_bytes) if size >= 0 else self._read_bytes
        if self._head:
            data, self._head = self._head[:most], self._head[most:]
        else:
            data = self._stream.read(most)
        self.taken += len(data)
        return data

    def go_on(self, stream: ByteReader) -> None:
        """Read the rest from another stream of the same file."""
        stream.seek(self.taken + len(self._head))
        self._stream = stream

    def readinto(self, buffer: memoryview) -> int:
        """As `read`, into `buffer`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def read_blocks(source: StoredBytes, compression: Compression) -> Iterator[bytes]:
    """The decompressed content in order; raises `CorruptFileError` where it cannot be had whole."""
    if compression is Compression.GZIP:
        return _gzip_blocks(source)
    if compression is Compression.ZSTD:
        return _zstd_blocks(source)
    return _plain_blocks(source)


def _plain_blocks(source: StoredBytes) -> Iterator[bytes]:
    while block := source.read(BLOCK_BYTES):
        yield block


def _gzip_blocks(source: StoredBytes) -> Iterator[bytes]:
    """All members of a gzip file; zero bytes after a member are padding, as for the gzip command."""
    members = cast(Readable, igzip.open(source, "rb"))  # type: ignore[no-untyped-call]
    while True:
        try:
            block = members.read(BLOCK_BYTES)
        except _GZIP_ERRORS as error:
            raise _corrupt(source, "gzip", error) from error
        except OverflowError as error:
            raise _corrupt(source, "gzip", ValueError(_LONG_HEADER)) from error
        if not block:
            return
        yield block


def _zstd_blocks(source: StoredBytes) -> Iterator[bytes]:
    """All frames of a zstd file, skippable ones passed over; frames that expand to little are joined."""
    parts: list[bytes] = []
    size = 0
    for part in _zstd_parts(source):
        parts.append(part)
        size += len(part)
        if size >= BLOCK_BYTES // 2:
            yield b"".join(parts)
            parts.clear()
            size = 0
    if parts:
        yield b"".join(parts)


def _zstd_parts(source: StoredBytes) -> Iterator[bytes]:
    pending = memoryview(b"")
    known = _KnownFrames()
    while pending or (pending := memoryview(source.read(READ_BYTES))):
        # A frame that is here whole is decoded from a view: handing the decoder all of `pending` would copy
        # the rest once a frame, which for frames of 1 KB means moving every stored byte 500 times.
        whole = _whole_frame_size(pending)
        content = known.content(pending, whole)
        if content is not None:
            pending = pending[whole:]
            if content:
                yield content
            continue
        source.window_bytes = _window_size(pending)
        frame, pending = (pending[:whole], pending[whole:]) if whole else (pending, memoryview(b""))
        if whole <= _SMALL_FRAME_BYTES and whole:
            content = b"".join(_frame_parts(source, frame))
            known.add(frame, content)
            yield from (content,) if content else ()
            continue
        unused = yield from _frame_parts(source, frame)
        if not whole:
            pending = memoryview(unused)


def _frame_parts(source: StoredBytes, data: memoryview) -> Generator[bytes, None, bytes]:
    """The content of the frame that `data` begins with, and the rest of which `source` holds; returns what is
    behind the frame of the bytes that were taken."""
    decoder = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
    dictionary = _dictionary_number(data)
    while not decoder.eof:
        try:
            part = decoder.decompress(data, BLOCK_BYTES)
        except (zstd.ZstdError, EOFError) as error:
            if dictionary:
                raise _needs_dictionary(source, dictionary) from error
            raise _corrupt(source, "zstd", error) from error
        if part:
            yield part
        data = memoryview(b"")
        if decoder.needs_input and not decoder.eof:
            data = memoryview(source.read(READ_BYTES))
            if not data:
                raise _corrupt(source, "zstd", EOFError("the file ends inside a frame: it is cut short"))
    return bytes(decoder.unused_data)


class _KnownFrames:
    """What small frames hold, by their bytes. A frame means the same wherever it stands."""

    def __init__(self) -> None:
        self._contents: dict[bytes, bytes] = {}

    def content(self, data: memoryview, size: int) -> bytes | None:
        """What the frame of `size` bytes holds that `data` begins with; None where that is not known."""
        if not size:
            return None
        if data[1:4] == _SKIPPABLE_MAGIC and 0x50 <= data[0] <= 0x5F:
            return b""
        return self._contents.get(bytes(data[:size])) if size <= _SMALL_FRAME_BYTES else None

    def add(self, frame: memoryview, content: bytes) -> None:
        if len(self._contents) < _KNOWN_FRAMES and len(content) <= _SMALL_CONTENT_BYTES:
            self._contents[bytes(frame)] = content


def _whole_frame_size(data: memoryview) -> int:
    """Stored size of the frame that `data` begins with; 0 if it is not here whole, or not a frame."""
    try:
        return zstd.get_frame_size(data)
    except zstd.ZstdError:
        return 0


def frame_content_bytes(head: bytes | memoryview) -> int:
    """What a zstd frame says of its content in its first `ZSTD_HEADER_BYTES`; 0 where it says nothing."""
    try:
        return zstd.get_frame_info(head).decompressed_size or 0
    except zstd.ZstdError:  # the decoder will say what is wrong with it
        return 0


def _dictionary_number(head: memoryview) -> int:
    """Of the dictionary that the frame at `head` needs; 0 where it names none, or its header is not here whole."""
    try:
        return zstd.get_frame_info(head).dictionary_id
    except zstd.ZstdError:
        return 0


def _window_size(frame: memoryview) -> int:
    """Bytes that the decoder of a frame holds to copy from; 0 where its header does not tell (RFC 8878, 3.1.1.1)."""
    if len(frame) < ZSTD_HEADER_BYTES or frame[:4] != _ZSTD_MAGIC:
        return 0
    if frame[4] & _SINGLE_SEGMENT:
        return frame_content_bytes(frame)
    base: int = 1 << (10 + (frame[5] >> 3))
    return base + base // 8 * (frame[5] & 7)


def _needs_dictionary(source: StoredBytes, number: int) -> CorruptFileError:
    stem = posixpath.basename(source.uri).removesuffix(".zst").removesuffix(".zstd")
    target = beside(source.uri, f"plain-{stem}")
    command = f"{before_command(source.uri)}zstd -d -D DICTIONARY {shell_name(source.uri)} -o {target}{THEN}"
    return CorruptFileError(
        FileOutcome.CORRUPT_FILE,
        None,
        f"zstd: the file needs dictionary {number}, and tokjob reads only files without a dictionary{WHAT_TO_DO}"
        f"decompress it, with the file of the dictionary for DICTIONARY: {command}",
    )


def _corrupt(source: StoredBytes, decoder: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(FileOutcome.CORRUPT_FILE, source.taken, f"{decoder}: {error}")
