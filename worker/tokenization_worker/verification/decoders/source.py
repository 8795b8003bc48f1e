"""A second reader of the source: small, slow, simple, and independent of the one that wrote the dataset.

A file is read from its start to its end, never in slices; gzip through zlib of the standard library; every record
by its own code path. What becomes of a file or a record follows docs/policy.md. Memory is bounded by the longest
line that is parsed (6 times `documents.maxBytes` and 64 KiB) and its parsed form, whatever the file's size.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from typing import BinaryIO, cast

import orjson

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.readers.document_batch import FileOutcome, Reason
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders.foreign import foreign_kind
from tokenization_worker.verification.decoders.frames import ZstdContent
from tokenization_worker.verification.decoders.members import GzipContent
from tokenization_worker.verification.decoders.parquet import read_rows
from tokenization_worker.verification.decoders.record import CorruptSource, Record, SeekableStream
from tokenization_worker.verification.facts import zstd

BOM = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 20
_BLANK = re.compile(rb"[ \t\r]*")
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_DECODER_ERRORS = (BadGzipFile, EOFError, zlib.error, zstd.ZstdError)
_NEVER_EMPTY = (".gz", ".zst", ".zstd", ".parquet")
_FORMATS = {
    ".jsonl": SourceFormat.JSONL,
    ".ndjson": SourceFormat.JSONL,
    ".json": SourceFormat.JSONL,
    ".txt": SourceFormat.TEXT,
    ".md": SourceFormat.TEXT,
}


def read_records(
    stream: ByteReader, uri: str, rules: SourceRules, start: int = 0, on_advance: OnAdvance = ignore_advance
) -> Iterator[Record]:
    """All records of a file in order; raises `CorruptSource`, also after records that look fine.

    `start`: the position of the first record wanted; what lies before it is read (of a Parquet file: left out)
    but not judged. `on_advance` gets stored bytes.
    """
    raw = SeekableStream(stream, on_advance)
    stored = cast(BinaryIO, io.BufferedReader(raw, _BLOCK_BYTES))
    magic = stored.read(4)
    stored.seek(0)
    if not magic and (uri.endswith(_NEVER_EMPTY) or rules.format is SourceFormat.PARQUET):
        raise CorruptSource(FileOutcome.EMPTY_FILE, "0 bytes")
    content, is_packed = _decompressed(stored, magic)
    head = _read(content, 64 << 10)
    if foreign := foreign_kind(head, is_packed=is_packed):
        raise CorruptSource(FileOutcome.UNSUPPORTED_FILE, foreign)
    format = detect_format(head, uri, rules)
    if format is SourceFormat.PARQUET:
        if is_packed:
            raise CorruptSource(FileOutcome.CORRUPT_FILE, "Parquet inside of a compressed file")
        stored.seek(0)
        yield from read_rows(stored, raw, rules, start)
        return
    for mark in (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"):
        if head.startswith(mark):
            raise CorruptSource(FileOutcome.WRONG_ENCODING, f"byte order mark {mark.hex(' ')}")
    separator = b"\n" if format is SourceFormat.JSONL else rules.separator
    longest = _longest_line(rules) if format is SourceFormat.JSONL else rules.max_document_bytes
    is_lines = format is SourceFormat.JSONL
    judge = _judge_line if is_lines else _judge_text
    mark_bytes = len(BOM) if head.startswith(BOM) else 0
    parts = _split(_blocks(content, head), separator, longest, passes_blank=is_lines)
    for position, number, part, length, has_separator in parts:
        if position >= start:
            size = length + has_separator if is_lines else length - (0 if position else mark_bytes)
            record = judge(position, number, part, size, rules)
            if record is not None:
                yield record


def _decompressed(stored: BinaryIO, magic: bytes) -> tuple[BinaryIO, bool]:
    """The content of a file, and whether it was compressed; by its first bytes, whatever its name is."""
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, GzipContent(stored)), True
    is_skippable = magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F
    if magic == b"\x28\xb5\x2f\xfd" or is_skippable:
        return cast(BinaryIO, ZstdContent(stored)), True
    return stored, False


def _read(content: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end."""
    parts = []
    try:
        while size > 0 and (part := content.read(size)):
            parts.append(part)
            size -= len(part)
    except _DECODER_ERRORS as error:
        raise CorruptSource(FileOutcome.CORRUPT_FILE, str(error)) from error
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
    suffix = _suffix(uri)
    if suffix in _FORMATS:
        return _FORMATS[suffix]
    if head.removeprefix(BOM).lstrip()[:1] == b"{" or not head:
        return SourceFormat.JSONL
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return SourceFormat.TEXT  # what it is does not matter: its encoding is refused
    if suffix == ".parquet":
        raise CorruptSource(FileOutcome.CORRUPT_FILE, f"named .parquet but begins with {head[:4]!r}")
    raise SpecError("SourceInvalid", f"cannot detect the format of {uri}", next_step="set source.format")


def may_be_parquet(uri: str, format: SourceFormat) -> bool:
    """Whether a file is Parquet as far as its name tells; one that is named as text is taken for text."""
    return format is SourceFormat.PARQUET or (format is SourceFormat.AUTO and _suffix(uri) not in _FORMATS)


def _suffix(uri: str) -> str:
    """With its dot, below that of the compression."""
    name = uri.rpartition("/")[2].lower()
    for packed in (".gz", ".zst", ".zstd"):
        name = name.removesuffix(packed)
    _, dot, suffix = name.rpartition(".")
    return dot + suffix


def _split(
    blocks: Iterator[bytes], separator: bytes | None, longest: int, *, passes_blank: bool
) -> Iterator[tuple[int, int, bytes | None, int, bool]]:
    """(offset, number, content, length, whether a separator follows) of every part.

    The content is without byte order mark, which the length has; None: longer than `longest`. `passes_blank`: of blank
    lines that follow one another not all are given.
    """
    buffer = bytearray()  # the bytes of the open part that are kept; its last ones are never dropped
    position = 0  # of the open part
    number = 1  # of the open part
    dropped = 0  # bytes of the open part that are no longer in the buffer
    size = len(separator) if separator else 0
    for block in blocks:
        searched = len(buffer)
        buffer += block
        begin = 0
        while separator:
            at = buffer.find(separator, max(begin, searched - size + 1))
            if at < 0:
                break
            part = _part(buffer[begin:at], dropped, longest, position)
            yield position, number, part, dropped + at - begin, True
            position += dropped + at + size - begin
            number += 1
            begin, dropped = at + size, 0
            if passes_blank and bytes(buffer[begin : begin + 1]) in (b"\n", b"\r", b" ", b"\t"):
                stop, lines = _pass_blank(buffer, begin, longest)
                position += stop - begin
                number += lines
                begin = stop
        del buffer[:begin]
        if len(buffer) > longest + size + len(BOM) or dropped:
            dropped += max(0, len(buffer) - size)
            del buffer[: max(0, len(buffer) - size)]
    if dropped or (buffer and (position or buffer != BOM)):
        yield position, number, _part(buffer, dropped, longest, position), dropped + len(buffer), False


def _pass_blank(buffer: bytearray, begin: int, longest: int) -> tuple[int, int]:
    """Where the blank lines at `begin` end, and how many they are; the open one at the end is not among them."""
    lines = 0
    while True:
        most = begin + longest + 1
        found = _NOT_BLANK.search(buffer, begin, most)
        stop = buffer.rfind(b"\n", begin, found.start() if found else most) + 1
        if not stop:
            return begin, lines
        lines += buffer.count(b"\n", begin, stop)
        begin = stop


def _part(data: bytearray, dropped: int, longest: int, position: int) -> bytes | None:
    content = bytes(data if position else data.removeprefix(BOM))
    return None if dropped or len(content) > longest else content


def _longest_line(rules: SourceRules) -> int:
    return 6 * rules.max_document_bytes + (64 << 10)


def _judge_text(position: int, number: int, part: bytes | None, size: int, rules: SourceRules) -> Record:
    if part is None or len(part) > rules.max_document_bytes:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE, size=size)
    try:
        return Record(position, number, part.decode(), size=size)
    except UnicodeDecodeError:
        return Record(position, number, None, Reason.INVALID_UTF8, size=size)


def _text_path(record: dict[str, object], text_field: str) -> list[str]:
    """The names to descend by: with a dot in one name where no object leads to the last of them."""
    above = text_field.split(".")
    last = above.pop()
    parent: object = record
    for name in above:
        parent = parent.get(name) if isinstance(parent, dict) else None
    is_flat = text_field in record and not (isinstance(parent, dict) and last in parent)
    return [text_field] if is_flat else [*above, last]


def _judge_line(position: int, number: int, line: bytes | None, size: int, rules: SourceRules) -> Record | None:
    if line is None:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE, size=size)
    if _BLANK.fullmatch(line):
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return Record(position, number, None, Reason.INVALID_JSON, size=size)
    if not isinstance(value, dict):
        return Record(position, number, None, Reason.NOT_AN_OBJECT, size=size)
    for name in _text_path(value, rules.text_field):
        if not isinstance(value, dict):
            return Record(position, number, None, Reason.WRONG_TEXT_TYPE, size=size)
        if name not in value:
            return Record(position, number, None, Reason.MISSING_TEXT, size=size)
        value = value[name]
        if value is None:
            return Record(position, number, None, Reason.NULL_TEXT, size=size)
    if not isinstance(value, str):
        return Record(position, number, None, Reason.WRONG_TEXT_TYPE, size=size)
    if len(value.encode()) > rules.max_document_bytes:
        return Record(position, number, None, Reason.DOCUMENT_TOO_LARGE, size=size)
    return Record(position, number, value, raw=line, size=size)
