"""Reads the first documents of a file, for the plan: where the text is, and how much there is.

Reads some hundred KiB, never a whole large file. What it finds is an estimate and a warning; the outcome of the
file is decided by reading all of it.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.decompress import StoredBytes, read_blocks
from tokenization_worker.readers.detection.detect import (
    HEAD_BYTES,
    UTF8_BOM,
    check_not_empty,
    detect_compression,
    detect_format,
)
from tokenization_worker.readers.detection.encodings import count_lines, guess_wide
from tokenization_worker.readers.document_batch import (
    Compression,
    CorruptFileError,
    DocumentBatch,
    ReadOptions,
    Reason,
    Rejected,
    excerpt,
)
from tokenization_worker.readers.field_path import has_both, which_is_read
from tokenization_worker.readers.lines.blank_lines import first_lines
from tokenization_worker.readers.lines.jsonl import max_line_bytes, read_jsonl
from tokenization_worker.readers.lines.record_splitter import split_runs
from tokenization_worker.readers.lines.text import read_text
from tokenization_worker.readers.lines.text_fields import first_records, line_advice, text_advice
from tokenization_worker.readers.open import OpenSource, record_separator
from tokenization_worker.readers.parquet.reader import read_parquet_head

_PATIENCE = 32
"""A first document larger than the sample is read on for, up to this many times the sample's size."""

_UNUSABLE = 3
"""Unusable records of a head that are kept, as examples."""

_FIELD_LINES = 1000
"""Lines of a head whose fields are named; a message shows 20 names."""

_JUDGED = 20
"""Unusable lines that must have the same fault for a command to be certain."""

_AROUND = 2048
"""Bytes before and behind the first one that is not UTF-8, for a guess at the encoding."""

_READ_BYTES = 16 << 10
"""Small, so that the stored bytes of a sample are known closely."""


@dataclass(frozen=True, slots=True)
class HeadSample:
    """The documents at the start of a file; `rejected` counts the reasons of what is none.

    `source_bytes` are decompressed bytes of the sampled records (Parquet: of their text), `stored_bytes` the
    stored bytes these stand for (Parquet: the share of the file that they are of its rows), so that a file of n stored
    bytes holds about n * source_bytes / stored_bytes. `fields` are the names in the sampled objects, or the columns, as
    dotted paths.
    `damage` is what was seen so far; a sample without it promises nothing. `is_array`: what should be lines of JSON
    begins like one JSON array. `field_advice`: where no record has a text, what to do about it. `is_whole`: the file
    was read to its end. `content_bytes` and `taken_bytes`: decompressed and stored bytes that were looked
    at, also where there is no whole record among them.

    `document_bytes`, `rejected_bytes`: bytes of the documents in the sample, and of the unusable ones, of which
    `unusable` are the first. A text of which a part is known, and that is not UTF-8, is one of them. `not_utf8`: bytes
    around the first one that is not UTF-8, where records are unusable; the first bytes of UTF-16. `encoded_lines`: of
    the lines with bytes above 0x7f those that are UTF-8, and those that are not; counted where `not_utf8` is there.
    `warning`: that another field than the one that is read could be meant, or "".
    """

    texts: list[str]
    rejected: Counter[str]
    source_bytes: int
    stored_bytes: float
    damage: CorruptFileError | None
    fields: list[str]
    is_array: bool = False
    field_advice: str = ""
    is_whole: bool = False
    content_bytes: int = 0
    taken_bytes: int = 0
    document_bytes: int = 0
    rejected_bytes: int = 0
    unusable: tuple[Rejected, ...] = ()
    not_utf8: bytes = b""
    encoded_lines: tuple[int, int] = (0, 0)
    compression: Compression = Compression.NONE
    warning: str = ""


def read_head(
    uri: str,
    size: int,
    options: ReadOptions,
    max_bytes: int,
    open_source: OpenSource,
    most_bytes: int | None = None,
) -> HeadSample:
    """The whole records in the first `max_bytes` decompressed bytes, and at least one if it is not huge.

    For a first record it reads on up to `most_bytes` (default: `_PATIENCE` times `max_bytes`). A last record that is
    not there whole is left out. Raises `SpecError` where the format cannot be told or read, and what the store raises.
    """
    stream = open_source(uri)
    try:
        stored = StoredBytes(stream, uri=uri, read_bytes=_READ_BYTES)
        head = stored.peek(min(size, HEAD_BYTES))
        check_not_empty(head, uri, options.format)
        compression = detect_compression(head)
        blocks = read_blocks(stored, compression)
        content = next(blocks, b"")
        format = detect_format(content, uri, options.format, compression)
        if format is SourceFormat.PARQUET:
            return _parquet_head(uri, size, options, max_bytes, open_source)
        separator = record_separator(format, options)
        is_array = format is SourceFormat.JSONL and content.removeprefix(UTF8_BOM).lstrip()[:1] == b"["
        most_bytes = max_bytes if is_array else most_bytes or _PATIENCE * max_bytes
        content, ended = _collect(content, blocks, separator, max_bytes, most_bytes)
        if not ended and stored.taken >= size:  # all of it has come: is it whole?
            more = next(blocks, b"")
            content, ended = content + more, not more
        whole = len(content) if ended else _whole_records(content, separator)
        texts: list[str] = []
        unusable: list[Rejected] = []
        document_bytes = 0
        for batch in _read(content[:whole], format, options):
            texts += batch.texts
            unusable += batch.rejected
            document_bytes += batch.source_bytes - batch.other_bytes
        not_utf8 = b""
        if unusable:  # ASCII in UTF-16 is valid UTF-8, with NUL bytes
            is_wide = guess_wide(content[:_AROUND]) is not None
            not_utf8 = content[:_AROUND] if is_wide else _not_utf8(content[:whole], is_whole=True)
        if format is SourceFormat.TEXT and not whole and (not_utf8 := _not_utf8(content, is_whole=False)):
            reason, detail = Reason.INVALID_UTF8, "bytes that are not UTF-8 in a document that was not read to its end"
            unusable = [Rejected(0, 0, reason, detail, excerpt(content), len(content))]
            document_bytes = len(content)
        return HeadSample(
            texts=texts,
            rejected=Counter(item.reason for item in unusable),
            source_bytes=whole,
            stored_bytes=stored.taken * whole // len(content) if content else 0,
            damage=None,
            fields=_fields(content[:whole]) if format is SourceFormat.JSONL else [],
            field_advice=_advice(content[:whole], format, texts, unusable, uri, compression),
            is_array=is_array,
            is_whole=ended,
            content_bytes=len(content),
            taken_bytes=stored.taken,
            document_bytes=document_bytes,
            rejected_bytes=sum(item.bytes for item in unusable),
            unusable=tuple(unusable[:_UNUSABLE]),
            not_utf8=not_utf8,
            encoded_lines=count_lines(content[:whole] or content) if not_utf8 else (0, 0),
            compression=compression,
            warning=_warning(content[:whole], options.text_field) if format is SourceFormat.JSONL else "",
        )
    except CorruptFileError as damage:
        return HeadSample([], Counter(), 0, 0, damage, [])
    finally:
        stream.close()


def _advice(
    content: bytes,
    format: SourceFormat,
    texts: list[str],
    unusable: list[Rejected],
    uri: str,
    compression: Compression,
) -> str:
    """What to do about unusable records; where others have a text, only what corrects all of them."""
    if not unusable:
        return ""
    [(reason, _)] = Counter(item.reason for item in unusable).most_common(1)
    if reason == Reason.DOCUMENT_TOO_LARGE:
        return "" if texts else "raise documents.maxBytes: nearly all texts are larger"
    if format is not SourceFormat.JSONL:
        return ""
    lines = [content[item.position : item.position + item.bytes] for item in unusable[:_JUDGED]]
    found = line_advice(content, lines, uri, compression)
    return found if found or texts else text_advice(content, uri, compression)


def _parquet_head(uri: str, size: int, options: ReadOptions, max_bytes: int, open_source: OpenSource) -> HeadSample:
    stream = open_source(uri)
    try:
        found = read_parquet_head(stream, size, options.text_field, options.max_document_bytes, max_bytes)
    finally:
        stream.close()
    unusable = found.batch.rejected if found.batch else []
    source_bytes = found.batch.source_bytes if found.batch else 0
    return HeadSample(
        texts=found.batch.texts if found.batch else [],
        rejected=Counter(item.reason for item in unusable),
        source_bytes=source_bytes,
        stored_bytes=found.stored_bytes,
        damage=found.damage,
        fields=found.columns,
        content_bytes=source_bytes,
        taken_bytes=round(found.stored_bytes),
        is_whole=found.is_whole,
        document_bytes=source_bytes,
        rejected_bytes=sum(item.bytes for item in unusable),
        unusable=tuple(unusable[:_UNUSABLE]),
        warning=found.warning,
    )


def _not_utf8(content: bytes, *, is_whole: bool) -> bytes:
    """What is around the first byte that is not UTF-8; nothing where all is. The last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content, final=is_whole)
    except UnicodeDecodeError as error:
        return content[max(0, error.start - _AROUND) : error.start + _AROUND]
    return b""


def _collect(
    content: bytes, blocks: Iterator[bytes], separator: bytes | None, max_bytes: int, most_bytes: int
) -> tuple[bytes, bool]:
    """Content up to `max_bytes`, or its first record; and whether that is all there is."""
    parts = [content]
    size = len(content)
    has_record = separator is not None and separator in content
    while size < max_bytes or (not has_record and size < most_bytes):
        block = next(blocks, None)
        if block is None:
            return b"".join(parts), True
        parts.append(block)
        size += len(block)
        has_record = has_record or (separator is not None and separator in block)
    return b"".join(parts), False


def _whole_records(content: bytes, separator: bytes | None) -> int:
    last = content.rfind(separator) if separator else -1
    return last + len(separator) if separator and last >= 0 else 0


def _read(content: bytes, format: SourceFormat, options: ReadOptions) -> Iterator[DocumentBatch]:
    separator = record_separator(format, options)
    most = options.max_document_bytes
    blocks = iter((content,) if content else ())
    if format is SourceFormat.JSONL:
        return read_jsonl(split_runs(blocks, 0, -1, separator, max_line_bytes(most)), options.text_field, most)
    return read_text(split_runs(blocks, 0, -1, separator, most), separator, most)


def _warning(content: bytes, text_field: str) -> str:
    """Which field is read, where a record has the nested one and another of the same name."""
    path = tuple(text_field.split("."))
    if len(path) == 1 or not any(has_both(record, path) for record in first_records(content)):
        return ""
    return which_is_read(path)


def _fields(content: bytes) -> list[str]:
    """Names in the first objects of a sample, in the order seen, those of an object below another one dotted."""
    names: dict[str, None] = {}
    for line in first_lines(content, _FIELD_LINES):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            for name, value in record.items():
                names[name] = None
                if isinstance(value, dict):
                    names.update(dict.fromkeys(f"{name}.{below}" for below in value))
    return list(names)
