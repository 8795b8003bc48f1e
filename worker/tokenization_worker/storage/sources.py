"""The source: which files it has, in which order, and their bytes.

Order is part of the output: patterns as given, within a pattern by the URI's UTF-8 bytes, a file matched
twice counts once. What is skipped below folders and wildcards is the business of `patterns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.hf_uri import split_hf_uri
from tokenization_worker.storage.open import scheme_of
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.source_file import Changed, Source, SourceFile


def _source(uri: str, pins: dict[str, str]) -> Source:
    """What reads `uri`; at the commits in `pins`, where its files are in repositories."""
    scheme = scheme_of(uri)
    if scheme == "hf":
        with _needing("hf", "huggingface_hub"):
            from tokenization_worker.storage.hf_source import HfSource

        return HfSource(pins)
    return _source_without_pins(scheme)


@cache
def _source_without_pins(scheme: str) -> Source:
    make = _MAKERS.get(scheme)
    if make is None:
        raise SpecError(
            "SourceInvalid",
            f"source.uris: scheme {scheme!r} cannot be read by this version",
            next_step="use plain paths, file://, gs://, s3:// or hf://",
        )
    return make()


def _local_source() -> Source:
    from tokenization_worker.storage.local_source import LocalSource

    return LocalSource()


def _gcs_source() -> Source:
    from tokenization_worker.storage.gcs_source import GcsSource

    return GcsSource()


def _s3_source() -> Source:
    with _needing("s3", "boto3"):
        from tokenization_worker.storage.s3_source import S3Source

    return S3Source()


_MAKERS: dict[str, Callable[[], Source]] = {"file": _local_source, "gs": _gcs_source, "s3": _s3_source}


def serve_source(scheme: str, make: Callable[[], Source]) -> None:
    """Let `make` open the source of a scheme in this process from now on: for programs that bring one of their own."""
    _MAKERS[scheme] = make
    _source_without_pins.cache_clear()


@contextmanager
def _needing(extra: str, library: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise SpecError(
            "SourceNotReadable",
            f"{extra}:// is read with {library}, which is missing: {error}",
            next_step=f"in a checkout of this project: pip install '.[{extra}]'",
        ) from error


def has_pins(uris: Iterable[str]) -> bool:
    """Whether files of these patterns are in repositories, whose branches move."""
    return any(scheme_of(uri) == "hf" for uri in uris)


def pins_of(files: Iterable[SourceFile]) -> dict[str, str]:
    """The commit of each repository that `files` are in, as `list_source` takes them."""
    return {split_hf_uri(file.uri).root: file.pin for file in files if file.pin}


def open_source(uri: str, pin: str = "") -> ByteReader:
    """The raw bytes of one source file; raises `NotFound`."""
    return _open(uri, pin)[1]


def open_file(file: SourceFile) -> ByteReader:
    """The raw bytes of a file that was listed, whatever they are now; raises `NotFound`."""
    return open_source(file.uri, file.pin)


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


def list_source(uris: tuple[str, ...], pins: Mapping[str, str] | None = None) -> list[SourceFile]:
    """All files of the patterns in the order that fixes the output. `pins`: the commits of an earlier listing.

    Raises `SpecError("SourceInvalid")` for a pattern that matches nothing.
    """
    seen: set[str] = set()
    files: list[SourceFile] = []
    commits = dict(pins or {})
    for pattern in uris:
        matched = sorted(_match(pattern, commits), key=lambda file: file.uri.encode())
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


def _match(pattern: str, pins: dict[str, str]) -> Iterator[SourceFile]:
    source = _source(pattern, pins)
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


def connections_to(uris: tuple[str, ...]) -> int:
    """Calls that this process may have under way at once to the sources of these patterns."""
    return min(_source(uri, {}).connections for uri in uris)


def selects(pattern: str, uri: str) -> bool:
    """Whether a file at `uri` would be a file of the source; a pattern without wildcards counts as a folder."""
    return Pattern.parse(pattern).selects(uri)


def open_unchanged(uri: str, size: int, version: str, pin: str = "") -> ByteReader:
    """The file's bytes, provided it is still the one that was planned; raises `NotFound` or `Changed`."""
    found, stream = _open(uri, pin)
    if (found.size, found.version) != (size, version):
        stream.close()
        raise Changed(uri, SourceFile(uri, size, version), found)
    return stream


def _open(uri: str, pin: str) -> tuple[SourceFile, ByteReader]:
    return _source(uri, {split_hf_uri(uri).root: pin} if pin else {}).open(uri)
