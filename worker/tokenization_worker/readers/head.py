"""The first documents of a file, for the plan: is the text where the job says, and how much is in there?

Reads some hundred KiB, never a whole large file. What it finds is an estimate and a warning; the outcome of the
file is decided by reading all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.decompress import StoredBytes, read_blocks
from tokenization_worker.readers.documents import DamagedFile, DocumentBatch, ReadOptions
from tokenization_worker.readers.jsonl import max_line_bytes, read_jsonl
from tokenization_worker.readers.kinds import (
    HEAD_BYTES,
    UTF8_BOM,
    check_not_empty,
    detect_compression,
    detect_format,
)
from tokenization_worker.readers.open import OpenSource, record_separator
from tokenization_worker.readers.parquet import read_parquet_head
from tokenization_worker.readers.records import split_runs
from tokenization_worker.readers.text import read_text

_PATIENCE = 32
"""A first document larger than the sample is read on for, up to this many times the sample's size."""

_READ_BYTES = 16 << 10
"""Small, so that the stored bytes of a sample are known closely."""


@dataclass(frozen=True, slots=True)
class HeadSample:
    """The documents at the start of a file; `rejected` counts the reasons of what is none.

    `source_bytes` are decompressed bytes of the sampled records (Parquet: of their text), `stored_bytes` the
    stored bytes these stand for (Parquet: of all columns), so that a file of n stored bytes holds about
    n * source_bytes / stored_bytes. `fields` are the names in the sampled objects, or the columns, as dotted paths.
    `damage` is what was seen so far; a sample without it promises nothing. `is_array`: what should be lines of JSON
    begins like one JSON array.
    """

    texts: list[str]
    rejected: Counter[str]
    source_bytes: int
    stored_bytes: int
    damage: DamagedFile | None
    fields: list[str]
    is_array: bool = False


def read_head(uri: str, size: int, options: ReadOptions, max_bytes: int, open_source: OpenSource) -> HeadSample:
    """The whole records in the first `max_bytes` decompressed bytes, and at least one if it is not huge.

    A last record that is not there whole is left out. Raises `SpecError` where the format cannot be told or
    read, and what the store raises.
    """
    stream = open_source(uri)
    try:
        stored = StoredBytes(stream, read_bytes=_READ_BYTES)
        head = stored.peek(min(size, HEAD_BYTES))
        check_not_empty(head, uri, options.format)
        compression = detect_compression(head)
        blocks = read_blocks(stored, compression)
        content = next(blocks, b"")
        format = detect_format(content, uri, options.format, compression)
        if format is SourceFormat.PARQUET:
            return _parquet_head(uri, size, options, max_bytes, open_source)
        separator = record_separator(format, options)
        content, ended = _collect(content, blocks, separator, max_bytes)
        whole = len(content) if ended else _whole_records(content, separator)
        texts: list[str] = []
        rejected: Counter[str] = Counter()
        for batch in _read(content[:whole], format, options):
            texts += batch.texts
            rejected.update(item.reason for item in batch.rejected)
        return HeadSample(
            texts=texts,
            rejected=rejected,
            source_bytes=whole,
            stored_bytes=stored.taken * whole // len(content) if content else 0,
            damage=None,
            fields=_fields(content[:whole]) if format is SourceFormat.JSONL else [],
            is_array=format is SourceFormat.JSONL and content.removeprefix(UTF8_BOM).lstrip()[:1] == b"[",
        )
    except DamagedFile as damage:
        return HeadSample([], Counter(), 0, 0, damage, [])
    finally:
        stream.close()


def _parquet_head(uri: str, size: int, options: ReadOptions, max_bytes: int, open_source: OpenSource) -> HeadSample:
    stream = open_source(uri)
    try:
        found = read_parquet_head(stream, size, options.text_field, options.max_document_bytes, max_bytes)
    finally:
        stream.close()
    return HeadSample(
        texts=found.batch.texts if found.batch else [],
        rejected=Counter(item.reason for item in found.batch.rejected) if found.batch else Counter(),
        source_bytes=found.batch.source_bytes if found.batch else 0,
        stored_bytes=found.stored_bytes,
        damage=found.damage,
        fields=found.columns,
    )


def _collect(content: bytes, blocks: Iterator[bytes], separator: bytes | None, max_bytes: int) -> tuple[bytes, bool]:
    """Content up to `max_bytes`, or its first record; and whether that is all there is."""
    parts = [content]
    size = len(content)
    has_record = separator is not None and separator in content
    while size < max_bytes or (not has_record and size < _PATIENCE * max_bytes):
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


def _fields(content: bytes) -> list[str]:
    """Names in the objects of a sample, in the order seen, those of an object below another one dotted."""
    names: dict[str, None] = {}
    for line in content.removeprefix(UTF8_BOM).split(b"\n"):
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
