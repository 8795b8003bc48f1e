"""A second reader of the source: small, slow, obvious, and sharing nothing with the one that wrote the dataset.

A file is read from its start to its end, never in slices; gzip by the standard library; every record by its
own code path. What becomes of a file or a record follows docs/policy.md. Memory is bounded by the longest
line that is parsed (6 times `documents.maxBytes` and 64 KiB) and its parsed form, whatever the file's size.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import BinaryIO, cast

import orjson

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.readers.documents import FileOutcome, Reason
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.verification.facts import Poison, SourceRules, zstd

BOM = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 20
_BLANK = re.compile(rb"[ \t\r]*")
_DECODER_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error, zstd.ZstdError)
_NEVER_EMPTY = (".gz", ".zst", ".zstd", ".parquet")
_FORMATS = {
    ".jsonl": SourceFormat.JSONL,
    ".ndjson": SourceFormat.JSONL,
    ".json": SourceFormat.JSONL,
    ".txt": SourceFormat.TEXT,
    ".md": SourceFormat.TEXT,
}


class Damaged(Exception):
    """The file cannot be used as a whole."""

    def __init__(self, outcome: FileOutcome, detail: str) -> None:
        super().__init__(outcome, detail)
        self.outcome = outcome
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Record:
    """One record: a document (`text`) or unusable (`reason`). Blank lines are no records, but are counted.

    `position` is the byte offset in the decompressed file, or the row; `number` counts lines, pieces or rows
    from 1. `raw` is the line of a JSONL file.
    """

    position: int
    number: int
    text: str | None
    reason: Reason | None = None
    raw: bytes = b""


def refuse_poison(record: Record, poison: Poison) -> Record:
    """The record as a dataset has it: refused if it kills workers, and still holds the text that did."""
    digest = poison.get(record.position)
    if record.text is None or digest is None or sha256(record.text.encode()).hexdigest() != digest:
        return record
    return replace(record, text=None, reason=Reason.KILLS_WORKER)


class SeekableStream(io.RawIOBase):
    """The store's stream as the standard library wants it; keeps the store's own error."""

    def __init__(self, stream: ByteReader) -> None:
        self._stream = stream
        self.error: BaseException | None = None

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except BaseException as error:
            self.error = error
            raise
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def read_records(stream: ByteReader, uri: str, rules: SourceRules, start: int = 0) -> Iterator[Record]:
    """All records of a file in order; raises `Damaged`, also after records that look fine.

    `start`: the position of the first record wanted; what lies before it is read (of a Parquet file: left out)
    but not judged.
    """
    raw = SeekableStream(stream)
    stored = cast(BinaryIO, io.BufferedReader(raw, _BLOCK_BYTES))
    magic = stored.read(4)
    stored.seek(0)
    if not magic and (uri.endswith(_NEVER_EMPTY) or rules.format is SourceFormat.PARQUET):
        raise Damaged(FileOutcome.EMPTY_FILE, "0 bytes")
    content, is_packed = _decompressed(stored, magic)
    head = _read(content, 64 << 10)
    format = detect_format(head, uri, rules)
    if format is SourceFormat.PARQUET:
        from tokenization_worker.verification.rows import read_rows

        if is_packed:
            raise Damaged(FileOutcome.CORRUPT_FILE, "Parquet inside of a compressed file")
        stored.seek(0)
        yield from read_rows(stored, raw, rules, start)
        return
    for mark in (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"):
        if head.startswith(mark):
            raise Damaged(FileOutcome.WRONG_ENCODING, f"byte order mark {mark.hex(' ')}")
    separator = b"\n" if format is SourceFormat.JSONL else rules.separator
    longest = _longest_line(rules) if format is SourceFormat.JSONL else rules.max_document_bytes
    judge = _judge_line if format is SourceFormat.JSONL else _judge_piece
    for number, (position, piece) in enumerate(_split(_blocks(content, head), separator, longest), 1):
        if position >= start:
            record = judge(position, number, piece, rules)
            if record is not None:
                yield record


def _decompressed(stored: BinaryIO, magic: bytes) -> tuple[BinaryIO, bool]:
    """The content of a file, and whether it was compressed; by its first bytes, whatever its name is."""
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stored, mode="rb")), True
    is_skippable = magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F
    if magic == b"\x28\xb5\x2f\xfd" or is_skippable:
        windows: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}
        return cast(BinaryIO, zstd.ZstdFile(stored, options=windows)), True
    return stored, False


def _read(content: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end."""
    parts = []
    try:
        while size > 0 and (part := content.read(size)):
            parts.append(part)
            size -= len(part)
    except _DECODER_ERRORS as error:
        raise Damaged(FileOutcome.CORRUPT_FILE, str(error)) from error
    return b"".join(parts)


def _blocks(content: BinaryIO, head: bytes) -> Iterator[bytes]:
    block = head
    while block or (block := _read(content, _BLOCK_BYTES)):
        yield block
        block = b""


def detect_format(head: bytes, uri: str, rules: SourceRules) -> SourceFormat:
    """Auto: Parquet's magic, else the suffix below the compression's, else an object at the start."""
    if rules.format is not SourceFormat.AUTO:
        return rules.format
    if head.startswith(b"PAR1"):
        return SourceFormat.PARQUET
    name = uri.rpartition("/")[2].lower()
    for packed in (".gz", ".zst", ".zstd"):
        name = name.removesuffix(packed)
    _, dot, suffix = name.rpartition(".")
    if dot + suffix in _FORMATS:
        return _FORMATS[dot + suffix]
    if head.removeprefix(BOM).lstrip()[:1] == b"{" or not head:
        return SourceFormat.JSONL
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return SourceFormat.TEXT  # what it is does not matter: its encoding is refused
    if dot + suffix == ".parquet":
        raise Damaged(FileOutcome.CORRUPT_FILE, f"named .parquet but begins with {head[:4]!r}")
    raise SpecError("SourceInvalid", f"cannot tell the format of {uri}", next_step="set source.format")


def _split(blocks: Iterator[bytes], separator: bytes | None, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """(offset, content) of every piece, without separator and byte order mark; None: longer than `longest`."""
    buffer = bytearray()  # the bytes of the open piece that are kept; its last ones are never dropped
    position = 0  # of the open piece
    dropped = 0  # bytes of the open piece that are no longer in the buffer
    size = len(separator) if separator else 0
    for block in blocks:
        searched = len(buffer)
        buffer += block
        begin = 0
        while separator:
            at = buffer.find(separator, max(begin, searched - size + 1))
            if at < 0:
                break
            yield position, _piece(buffer[begin:at], dropped, longest, position)
            position += dropped + at + size - begin
            begin, dropped = at + size, 0
        del buffer[:begin]
        if len(buffer) > longest + size + len(BOM) or dropped:
            dropped += max(0, len(buffer) - size)
            del buffer[: max(0, len(buffer) - size)]
    if dropped or (buffer and (position or buffer != BOM)):
        yield position, _piece(buffer, dropped, longest, position)


def _piece(data: bytearray, dropped: int, longest: int, position: int) -> bytes | None:
    content = bytes(data if position else data.removeprefix(BOM))
    return None if dropped or len(content) > longest else content


def _longest_line(rules: SourceRules) -> int:
    return 6 * rules.max_document_bytes + (64 << 10)


def _judge_piece(position: int, number: int, piece: bytes | None, rules: SourceRules) -> Record:
    if piece is None or len(piece) > rules.max_document_bytes:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE)
    try:
        return Record(position, number, piece.decode())
    except UnicodeDecodeError:
        return Record(position, number, None, Reason.INVALID_UTF8)


def _judge_line(position: int, number: int, line: bytes | None, rules: SourceRules) -> Record | None:
    if line is None:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE)
    if _BLANK.fullmatch(line):
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return Record(position, number, None, Reason.INVALID_JSON)
    if not isinstance(value, dict):
        return Record(position, number, None, Reason.NOT_AN_OBJECT)
    for name in rules.text_field.split("."):
        if not isinstance(value, dict):
            return Record(position, number, None, Reason.WRONG_TEXT_TYPE)
        if name not in value:
            return Record(position, number, None, Reason.MISSING_TEXT)
        value = value[name]
        if value is None:
            return Record(position, number, None, Reason.NULL_TEXT)
    if not isinstance(value, str):
        return Record(position, number, None, Reason.WRONG_TEXT_TYPE)
    if len(value.encode()) > rules.max_document_bytes:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE)
    return Record(position, number, value, raw=line)
