"""The source: which files it has, in which order, and their bytes.

Order is part of the output: patterns as given, within a pattern by the URI's UTF-8 bytes, a file matched
twice counts once. What is skipped below folders and wildcards is the business of `patterns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.open import scheme_of
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.source_file import Changed, Source, SourceFile


@cache
def _source(scheme: str) -> Source:
    if scheme == "file":
        from tokenization_worker.storage.local_source import LocalSource

        return LocalSource()
    if scheme == "gs":
        from tokenization_worker.storage.gcs_source import GcsSource

        return GcsSource()
    raise SpecError(
        "SourceInvalid",
        f"source.uris: scheme {scheme!r} cannot be read by this version",
        next_step="use plain paths, file:// or gs://",
    )


def open_source(uri: str) -> ByteReader:
    """The raw bytes of one source file; raises `NotFound`."""
    return _source(scheme_of(uri)).open(uri)[1]


def read_uri(uri: str) -> bytes:
    """A small file whole (a tokenizer, never corpus data); raises `NotFound`."""
    stream = open_source(uri)
    try:
        chunks = []
        while chunk := stream.read(1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        stream.close()


def list_source(uris: tuple[str, ...]) -> list[SourceFile]:
    """All files of the patterns in the order that fixes the output.

    Raises `SpecError("SourceInvalid")` for a pattern that matches nothing.
    """
    seen: set[str] = set()
    files: list[SourceFile] = []
    for pattern in uris:
        matched = sorted(_match(pattern), key=lambda file: file.uri.encode())
        if not matched:
            raise SpecError(
                "SourceInvalid",
                f"source.uris: {pattern!r} matches no file",
                next_step="check the path; names beginning with '.' or '_' are skipped in folders and wildcards",
            )
        for file in matched:
            if file.uri not in seen:
                seen.add(file.uri)
                files.append(file)
    return files


def _match(pattern: str) -> Iterator[SourceFile]:
    source = _source(scheme_of(pattern))
    if "*" not in pattern:
        file = None if pattern.endswith("/") else source.stat(pattern)
        if file is not None:
            yield file
            return
        if not source.is_folder(pattern):
            return
    parsed = Pattern.parse(pattern)
    for file in source.list(parsed):
        if parsed.selects(file.uri):
            yield file


def selects(pattern: str, uri: str) -> bool:
    """Whether a file at `uri` would be a file of the source; a pattern without wildcards counts as a folder."""
    return Pattern.parse(pattern).selects(uri)


def open_unchanged(uri: str, size: int, version: str) -> ByteReader:
    """The file's bytes, provided it is still the one that was planned; raises `NotFound` or `Changed`."""
    found, stream = _source(scheme_of(uri)).open(uri)
    if (found.size, found.version) != (size, version):
        stream.close()
        raise Changed(uri, SourceFile(uri, size, version), found)
    return stream
