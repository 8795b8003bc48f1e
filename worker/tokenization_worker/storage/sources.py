"""Lists the files of the source in order, and opens them.

Order is part of the output: patterns as given, within a pattern by the URI's UTF-8 bytes, a file matched
twice counts once. What is skipped below folders and wildcards is the business of `patterns`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.endpoints import endpoint_in, require_usable_proxies
from tokenization_worker.storage.hf.uri import ENDPOINT_VARIABLE, HfUri, hf_identity, split_hf_uri
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.schemes import plain_path, scheme_of
from tokenization_worker.storage.source_file import Changed, Source, SourceFile, source_changed
from tokenization_worker.storage.unchanged import find_touched, hold


def _source(uri: str, pins: dict[str, str]) -> Source:
    """What reads `uri`; at the commits in `pins`, where its files are in repositories."""
    scheme = scheme_of(uri)
    if scheme == "hf":
        with _importing_hub():
            from tokenization_worker.storage.hf.source import HfSource

        return HfSource(pins)
    return _source_without_pins(scheme)


@cache
def _source_without_pins(scheme: str) -> Source:
    make = _MAKERS.get(scheme)
    if make is None:
        raise SpecError(
            "SourceInvalid",
            f"source.uris: scheme {scheme!r} is not supported by this version",
            next_step="use plain paths, file://, gs://, s3:// or hf://",
        )
    return make()


def _local_source() -> Source:
    from tokenization_worker.storage.local.source import LocalSource

    return LocalSource()


def _gcs_source() -> Source:
    from tokenization_worker.storage.gcs.source import GcsSource

    return GcsSource()


def _s3_source() -> Source:
    with _needing("s3", "boto3"):
        from tokenization_worker.storage.s3.source import S3Source

    return S3Source()


@contextmanager
def _importing_hub() -> Iterator[None]:
    require_usable_proxies()
    endpoint_in(ENDPOINT_VARIABLE)  # its library would end with a traceback when it is imported
    with _needing("hf", "huggingface_hub"):
        yield


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
            next_step=install_command(extra),
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


def find_model_commit(place: HfUri) -> str:
    """The commit at which a model's revision on the Hub stands now; raises `NotFound` where it lacks the file."""
    with _importing_hub():
        from tokenization_worker.storage.hf.source import stat_model
    return stat_model(place)[1]


def read_model_file(place: HfUri) -> bytes:
    """A small file of a model on the Hub, whole; raises `NotFound`."""
    with _importing_hub():
        from tokenization_worker.storage.hf.source import read_model
    return read_model(place)


def list_source(
    uris: tuple[str, ...], pins: Mapping[str, str] | None = None, field: str = "source.uris"
) -> list[SourceFile]:
    """All files of the patterns in the order that fixes the output. `pins`: the commits of an earlier listing. `field`:
    which one of the manifest has the patterns.

    Raises `SpecError("SourceInvalid")` for a pattern that matches nothing.
    """
    seen: set[object] = set()
    files: list[SourceFile] = []
    commits = dict(pins or {})
    for pattern in uris:
        matched = sorted(_match(pattern, commits), key=lambda file: file.uri.encode())
        if not matched:
            raise _matches_nothing(pattern, field)
        for file in matched:
            identity = file_identity(file)
            if identity not in seen:
                seen.add(identity)
                files.append(file)
    return files


def file_identity(file: SourceFile) -> object:
    """Equal for two addresses of one file: a repository has several names of one commit."""
    return hf_identity(file.uri, file.pin) if file.pin else file.uri


def _matches_nothing(pattern: str, field: str) -> SpecError:
    """The error of a pattern without files: what is wrong with it, where its own characters say so."""
    typed = pattern
    with suppress(FileNotFoundError):  # the current folder is gone, and the pattern is absolute
        typed = pattern.removeprefix(f"{Path.cwd()}/")
    why, step = _why_nothing(pattern, typed)
    return SpecError(
        "SourceInvalid",
        f"{field}: {pattern!r} matches no file{why and f': {why}'}",
        next_step=step or "check the path; names beginning with '.' or '_' are skipped in folders and wildcards",
    )


def _why_nothing(pattern: str, typed: str) -> tuple[str, str]:
    """The cause and the next step; "" where they are not known."""
    name = typed.rpartition("/")[2]
    if typed == "-":
        return "standard input is not a source", "write it to a file first (... > text.jsonl), and name that file"
    if typed[:1] in _QUOTES or name[-1:] in _QUOTES:
        return "the quotes are part of the name", "leave the inner quotes out"
    if re.match(r"[A-Za-z]:\\|[A-Za-z]:/", typed) or "\\" in typed:
        return (
            "tokjob reads a backslash as part of a name, not as a separator",
            "write / between folders (in WSL: /mnt/c/...)",
        )
    if "$" in typed:
        step = (
            "write the whole path (a manifest has no variables); on the command line, use double quotes or none, so "
            "that the shell expands it"
        )
        return "the variable after $ was not expanded", step
    if (braces := re.search(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", typed)) is not None:
        step = "write --source (in a manifest: a list entry of source.uris) for each of them"
        return f"{braces[0]} is not a pattern here; the only patterns are * and **", step
    if re.search(r"[?\[]", typed):
        return "? and [...] are not patterns here; the only patterns are * and **", "use *, or name the files"
    if "," in typed:
        step = "write --source (in a manifest: a list entry of source.uris) for each of them"
        return "a comma does not separate paths here", step
    if _is_list_of_paths(typed):
        step = "give each file its own --source, or its own quotes (in a manifest: its own list entry of source.uris)"
        return "a space is part of a name here, and does not separate paths", step
    if scheme_of(pattern) == "file":
        path = plain_path(pattern)
        if path.is_dir() and not any(path.iterdir()):
            return "the folder is empty", ""
    return "", ""


def _is_list_of_paths(typed: str) -> bool:
    """Whether each of the words between blanks is a path by itself: it exists, has a suffix, or is a pattern."""
    words = typed.split()
    return len(words) > 1 and all(re.search(r"\*|\w\.\w+$", word) or os.path.lexists(word) for word in words)


_QUOTES = tuple("'\"\u2018\u2019\u201c\u201d")


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


def closed_folders(uris: Iterable[str], output: str) -> list[str]:
    """The folders `lost+found` that listings of these patterns and of `output` leave out, since this user may not list
    them; each once."""
    from tokenization_worker.storage.local.lost_and_found import NAME, closed_folder

    parsed = [Pattern.parse(uri) for uri in uris if scheme_of(uri) == "file"]
    entered = [each.folder for each in parsed if each.may_enter(each.folder + NAME)]
    roots = [*entered, *([output] if scheme_of(output) == "file" else [])]
    closed = (closed_folder(plain_path(root)) for root in roots)
    return list(dict.fromkeys(folder for folder in closed if folder is not None))


def connections_to(uris: tuple[str, ...]) -> int:
    """Calls that this process may have under way at once to the sources of these patterns."""
    return min(_source(uri, {}).connections for uri in uris)


def selects(pattern: str, uri: str) -> bool:
    """Whether a file at `uri` would be a file of the source; a pattern without wildcards counts as a folder."""
    return Pattern.parse(pattern).selects(uri)


def open_unchanged(uri: str, size: int, version: str, pin: str = "") -> ByteReader:
    """The file's bytes, provided it is still the one that was planned; raises `NotFound` or `Changed`.

    A stream of a file that may change while it is read raises `ChangedError` where its end is not the planned one, and
    `unchanged.require_unchanged` tells after the last byte whether it did.
    """
    return open_as_seen(SourceFile(uri, size, version, pin))


def open_as_seen(file: SourceFile) -> ByteReader:
    """`open_unchanged` of a file, which was not touched either where it is known how it was."""
    found, stream = _open(file.uri, file.pin)
    if file.was_touched(found):
        stream.close()
        raise Changed(file.uri, file, found)
    return hold(stream, found)


def open_as_listed(file: SourceFile, listed: str) -> ByteReader:
    """`open_as_seen`; raises `ChangedError("SourceChanged")` where it is another file now, or none.

    `listed`: since when it may have changed, as the message says it.
    """
    try:
        return open_as_seen(file)
    except NotFound as error:
        raise source_changed(file, None, listed) from error
    except Changed as error:
        raise source_changed(error.was, error.now, listed) from error


def find_touched_files(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, SourceFile | None]]:
    """The local files that were written, replaced, removed or given other attributes since they were listed.

    Each with what it is now. Files in stores are not asked for: their readers name the version that was listed.
    """
    local = [file for file in files if file.ctime_ns]
    if not local:
        return iter(())
    from tokenization_worker.storage.local.source import stat_again

    return find_touched(local, stat_again)


def is_same_file(a: str, b: str) -> bool:
    """Whether two local paths lead to one file."""
    try:
        return Path(a).samefile(b)
    except OSError:  # one of them is gone by now: its reader reports that
        return False


def _open(uri: str, pin: str) -> tuple[SourceFile, ByteReader]:
    return _source(uri, {split_hf_uri(uri).root: pin} if pin else {}).open(uri)
