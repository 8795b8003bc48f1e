"""The source: which files it has, in which order, and their bytes.

Order is part of the output: patterns as given, within a pattern by the URI's UTF-8 bytes, a file matched
twice counts once. Names that begin with `.` or `_` are skipped below folders and wildcards (markers,
temporary files), not when they are named outright.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.open import scheme_of
from tokenization_worker.storage.source_file import Changed, Source, SourceFile

_WILDCARD = re.compile(r"[*]")


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
    if _WILDCARD.search(pattern) is None:
        file = None if pattern.endswith("/") else source.stat(pattern)
        if file is not None:
            yield file
            return
        if not source.is_folder(pattern):
            return
    folder, matcher = _split_pattern(pattern)
    for file in source.list(folder):
        if _is_visible(file.uri[len(folder) :], matcher):
            yield file


def selects(pattern: str, uri: str) -> bool:
    """Whether a file at `uri` would be a file of the source; a pattern without wildcards counts as a folder."""
    folder, matcher = _split_pattern(pattern)
    return uri.startswith(folder) and _is_visible(uri[len(folder) :], matcher)


def _split_pattern(pattern: str) -> tuple[str, re.Pattern[str]]:
    """The folder that holds all that a pattern matches, and what the rest of their URIs must match."""
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        return pattern.rstrip("/") + "/", re.compile(".*", re.DOTALL)
    folder = pattern[: wildcard.start()].rpartition("/")[0] + "/"
    return folder, compile_glob(pattern[len(folder) :])


def _is_visible(rest: str, matcher: re.Pattern[str]) -> bool:
    hidden = any(part.startswith((".", "_")) for part in rest.split("/"))
    return bool(rest) and not hidden and matcher.fullmatch(rest) is not None


def compile_glob(glob: str) -> re.Pattern[str]:
    """`*` matches within one path component, `**` over any number of them; all else is literal."""
    parts = []
    position = 0
    while position < len(glob):
        if glob.startswith("**/", position):
            parts.append("(?:[^/]+/)*")
            position += 3
        elif glob.startswith("**", position):
            parts.append(".*")
            position += 2
        elif glob[position] == "*":
            parts.append("[^/]*")
            position += 1
        else:
            parts.append(re.escape(glob[position]))
            position += 1
    return re.compile("".join(parts), re.DOTALL)


def open_unchanged(uri: str, size: int, version: str) -> ByteReader:
    """The file's bytes, provided it is still the one that was planned; raises `NotFound` or `Changed`."""
    found, stream = _source(scheme_of(uri)).open(uri)
    if (found.size, found.version) != (size, version):
        stream.close()
        raise Changed(uri, SourceFile(uri, size, version), found)
    return stream
