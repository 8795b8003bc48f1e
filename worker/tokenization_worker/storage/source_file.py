"""A source file as the plan sees it, what every scheme must offer, and how a change of a file is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tokenization_worker.errors import ChangedError
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.patterns import Pattern


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as the plan saw it.

    `version` is the store's content checksum where it has one, else the modification time in nanoseconds. `pin` is the
    commit to read it at, where `uri` is in a repository; it says where the file is, not which one it is.
    """

    uri: str
    size: int
    version: str
    pin: str = field(default="", compare=False)


class Source(Protocol):
    """Files of one scheme, read-only. `connections`: calls that a process may have under way at once."""

    connections: int

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        """At least every file that `pattern` selects, in no particular order."""
        ...

    def stat(self, uri: str) -> SourceFile | None:
        """The file at `uri`; None for a folder and for nothing."""
        ...

    def is_folder(self, uri: str) -> bool: ...

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        """The file's raw bytes from its start, and which file they are of; raises `NotFound`."""
        ...


class Changed(Exception):
    """A source file is not what the plan recorded."""

    def __init__(self, uri: str, was: SourceFile, now: SourceFile) -> None:
        super().__init__(uri, was, now)
        self.uri, self.was, self.now = uri, was, now


def source_changed(was: SourceFile, now: SourceFile | None) -> ChangedError:
    """The error for a file that is not what the plan recorded; `now` None: it is gone."""
    is_now = "it is gone" if now is None else f"is {now.size} bytes, {now.version}"
    return ChangedError(
        "SourceChanged",
        f"{was.uri} changed since the plan was made: was {was.size} bytes, {was.version}; {is_now}",
        next_step="put the planned file back, or start a new run: another output.uri, "
        "or a new rerunToken where output.uri holds {rerunToken}",
    )


def first_file_difference(was: Iterable[SourceFile], now: Iterable[SourceFile]) -> str | None:
    """The first file that is not the same in both, in words; None where all are, in the same order."""
    old, new = list(was), list(now)
    for a, b in zip(old, new, strict=False):
        if a.uri != b.uri:
            return f"the source lists {b.uri} where it listed {a.uri}"
        if a != b:
            return f"{a.uri}: was {a.size} bytes, {a.version}; is {b.size} bytes, {b.version}"
    if len(old) != len(new):
        return f"the source has {len(new):,} files, it had {len(old):,}"
    return None
