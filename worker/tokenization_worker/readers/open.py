"""A slice of a source file to batches of documents: puts the parts of this package together.

Owns the open stream: it is closed when the iterator ends, fails or is dropped. Raises `DamagedFile` for a
file to be dropped whole (what was yielded of it before does not count), `SpecError` for a format that cannot
be told or read, and whatever the store raises. Nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.decompress import StoredBytes, read_blocks
from tokenization_worker.readers.documents import Compression, DocumentBatch, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.jsonl import SEPARATOR, max_line_bytes, read_jsonl
from tokenization_worker.readers.kinds import (
    HEAD_BYTES,
    check_encoding,
    check_not_empty,
    detect_compression,
    detect_format,
)
from tokenization_worker.readers.parquet import read_parquet
from tokenization_worker.readers.records import first_byte, split_runs
from tokenization_worker.readers.text import read_text
from tokenization_worker.storage.base import ByteReader

OpenSource = Callable[[str], ByteReader]


def read_documents(source: FileSlice, options: ReadOptions, open_source: OpenSource) -> Iterator[DocumentBatch]:
    """All records that start in a slice, in order, in batches of some MiB."""
    stream = open_source(source.uri)
    try:
        if source.start > 0 and source.kind is not None and source.kind.format is not SourceFormat.PARQUET:
            yield from _read_inside(stream, source, source.kind.format, options)
        else:
            yield from _read_from_start(stream, source, options)
    finally:
        stream.close()


def record_separator(format: SourceFormat, options: ReadOptions) -> bytes | None:
    """What ends a record of this format; None where a file is one record."""
    return SEPARATOR if format is SourceFormat.JSONL else options.document_separator


def _read_inside(
    stream: ByteReader, source: FileSlice, format: SourceFormat, options: ReadOptions
) -> Iterator[DocumentBatch]:
    """A slice that does not begin the file, which is uncompressed and of known kind."""
    stream.seek(first_byte(source.start, record_separator(format, options)))
    return _read_blocks(read_blocks(StoredBytes(stream), Compression.NONE), source, format, options)


def _read_from_start(stream: ByteReader, source: FileSlice, options: ReadOptions) -> Iterator[DocumentBatch]:
    """A slice that begins its file (or any slice of a Parquet file), whose kind may have to be found out."""
    if source.kind is not None and source.kind.format is SourceFormat.PARQUET:
        return _read_parquet(stream, source, options)
    stored = StoredBytes(stream)
    kind = source.kind
    if kind is None:
        head = stored.peek(HEAD_BYTES)
        check_not_empty(head, source.uri, options.format)
        compression = detect_compression(head)
    else:
        compression = kind.compression
    blocks = read_blocks(stored, compression)
    first = next(blocks, b"")
    if kind is None:
        kind = FileKind(detect_format(first, source.uri, options.format, compression), compression)
    else:
        check_encoding(first, source.uri, compression)
    if kind.format is SourceFormat.PARQUET:
        return _read_parquet(stream, source, options)
    return _read_blocks(chain((first,) if first else (), blocks), source, kind.format, options)


def _read_parquet(stream: ByteReader, source: FileSlice, options: ReadOptions) -> Iterator[DocumentBatch]:
    return read_parquet(stream, source.size, source.start, source.end, options.text_field, options.max_document_bytes)


def _read_blocks(
    blocks: Iterator[bytes], source: FileSlice, format: SourceFormat, options: ReadOptions
) -> Iterator[DocumentBatch]:
    separator = record_separator(format, options)
    most = options.max_document_bytes
    if format is SourceFormat.JSONL:
        runs = split_runs(blocks, source.start, source.end, separator, max_line_bytes(most))
        return read_jsonl(runs, options.text_field, most)
    return read_text(split_runs(blocks, source.start, source.end, separator, most), separator, most)
