"""A slice of a source file to batches of documents: puts the parts of this package together.

Owns the open stream: it is closed when the iterator ends, fails or is dropped. Raises `CorruptFileError` for a
file to be dropped whole (what was yielded of it before does not count, nor do its other slices), `SpecError` for a
format that cannot be told or read, and whatever the store raises. Nothing is retried here. A file that was changed
while it was read is a `ChangedError` and nothing else, also where it looks corrupt or of no known format.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.readers.decompress import StoredBytes, read_blocks
from tokenization_worker.readers.detection.detect import (
    HEAD_BYTES,
    check_not_empty,
    check_readable,
    detect_compression,
    detect_format,
)
from tokenization_worker.readers.document_batch import (
    Compression,
    CorruptFileError,
    DocumentBatch,
    FileKind,
    FileSlice,
    ReadOptions,
)
from tokenization_worker.readers.lines.jsonl import SEPARATOR, max_line_bytes, read_jsonl
from tokenization_worker.readers.lines.record_splitter import Oversized, Run, first_byte, split_runs
from tokenization_worker.readers.lines.text import read_text
from tokenization_worker.readers.parquet.reader import read_parquet
from tokenization_worker.readers.resumable_decoder import Content, SetAside
from tokenization_worker.storage.base import ByteReader, expect_ranges
from tokenization_worker.storage.unchanged import require_unchanged

OpenSource = Callable[[str], ByteReader]


def read_documents(
    source: FileSlice, options: ReadOptions, open_source: OpenSource, aside: SetAside | None = None
) -> Iterator[DocumentBatch]:
    """All records that start in a slice, in order, in batches of some MiB.

    `aside`: where the slice before has left its decoder, and this one leaves its own.
    """
    aside = aside or SetAside()
    left = aside.take(source, _first_byte(source, options))
    stream = open_source(source.uri)
    try:
        if source.kind is None or source.kind.format is SourceFormat.PARQUET:
            yield from _read_from_start(stream, source, options)
        elif source.kind.compression is not Compression.NONE:
            content = yield from _read_packed(stream, source, source.kind, options, left)
            if source.end >= 0:
                aside.put(source, content)
        elif source.start > 0:
            yield from _read_inside(stream, source, source.kind.format, options)
        else:
            yield from _read_from_start(stream, source, options)
        require_unchanged(stream)
    except (CorruptFileError, SpecError):
        require_unchanged(stream)
        raise
    finally:
        stream.close()


def record_separator(format: SourceFormat, options: ReadOptions) -> bytes | None:
    """What ends a record of this format; None where a file is one record."""
    return SEPARATOR if format is SourceFormat.JSONL else options.document_separator


def _first_byte(source: FileSlice, options: ReadOptions) -> int:
    """Of the content, where a slice begins to read; 0 where it reads from the start, or finds out."""
    return first_byte(source.start, record_separator(source.kind.format, options)) if source.kind else 0


def _read_inside(
    stream: ByteReader, source: FileSlice, format: SourceFormat, options: ReadOptions
) -> Iterator[DocumentBatch]:
    """A slice that does not begin the file, which is uncompressed and of known kind."""
    first = first_byte(source.start, record_separator(format, options))
    stream.seek(first)
    expect_ranges(stream, [(first, _end_of(source))])
    return _read_blocks(read_blocks(StoredBytes(stream), Compression.NONE), source, format, options)


def _read_packed(
    stream: ByteReader, source: FileSlice, kind: FileKind, options: ReadOptions, left: Content | None
) -> Generator[DocumentBatch, None, Content]:
    """A slice of a gzip or zstd file of known kind; returns its content, read as far as the slice needs it.

    Only the slice that goes to the end of the file sees all of it; the others may find damage, and need not.
    """
    if left is not None:
        content = left
        content.go_on(stream)
    else:
        content = Content(stream, kind.compression, source.uri)
        check_readable(content.head(), source.uri, kind.compression)  # in every slice: the outcome is one
    keep_from = first_byte(source.end, record_separator(kind.format, options)) if source.end >= 0 else None
    blocks = content.read(_first_byte(source, options), keep_from)
    yield from _read_blocks(blocks, source, kind.format, options)
    return content


def _read_from_start(stream: ByteReader, source: FileSlice, options: ReadOptions) -> Iterator[DocumentBatch]:
    """A slice that begins its file (or any slice of a Parquet file), whose kind may have to be found out."""
    if source.kind is not None and source.kind.format is SourceFormat.PARQUET:
        return _read_parquet(stream, source, options)
    kind, blocks = find_content(stream, source, options)
    if kind.format is SourceFormat.PARQUET:
        return _read_parquet(stream, source, options)
    return _read_blocks(blocks, source, kind.format, options)


def find_content(stream: ByteReader, source: FileSlice, options: ReadOptions) -> tuple[FileKind, Iterator[bytes]]:
    """The kind of a file that is read from its start, and its decompressed content; a Parquet file has to be opened."""
    stored = StoredBytes(stream, uri=source.uri)
    kind = source.kind
    if kind is None:
        head = stored.peek(HEAD_BYTES)
        check_not_empty(head, source.uri, options.format)
        compression = detect_compression(head)
    else:
        compression = kind.compression
        expect_ranges(stream, [(0, _end_of(source))])
    blocks = read_blocks(stored, compression)
    first = next(blocks, b"")
    if kind is None:
        kind = FileKind(detect_format(first, source.uri, options.format, compression), compression)
    else:
        check_readable(first, source.uri, compression)
    return kind, chain((first,) if first else (), blocks)


def _end_of(source: FileSlice) -> int:
    """Stored bytes before this are read; of a slice that ends inside the file a record more."""
    return source.end if source.end >= 0 else source.size


def _read_parquet(stream: ByteReader, source: FileSlice, options: ReadOptions) -> Iterator[DocumentBatch]:
    return read_parquet(stream, source.size, source.start, source.end, options.text_field, options.max_document_bytes)


def _read_blocks(
    blocks: Iterator[bytes], source: FileSlice, format: SourceFormat, options: ReadOptions
) -> Iterator[DocumentBatch]:
    return read_runs(runs_of(blocks, source, format, options), format, options)


def runs_of(
    blocks: Iterator[bytes], source: FileSlice, format: SourceFormat, options: ReadOptions
) -> Iterator[Run | Oversized]:
    """The records of a slice, still to be parsed."""
    most = options.max_document_bytes
    longest = max_line_bytes(most) if format is SourceFormat.JSONL else most
    return split_runs(blocks, source.start, source.end, record_separator(format, options), longest)


def read_runs(runs: Iterator[Run | Oversized], format: SourceFormat, options: ReadOptions) -> Iterator[DocumentBatch]:
    """The documents of records of lines or text."""
    if format is SourceFormat.JSONL:
        return read_jsonl(runs, options.text_field, options.max_document_bytes)
    return read_text(runs, record_separator(format, options), options.max_document_bytes)
