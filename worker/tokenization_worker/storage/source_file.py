"""A source file in the plan, the protocol of its scheme, and the description of a change."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from tokenization_worker.errors import ChangedError
from tokenization_worker.messages.counts import counted
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.patterns import Pattern

MTIME = "mtime:"
"""What the version of a local file begins with; nanoseconds follow."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as the plan saw it.

    `version` is the store's content checksum where it has one, else the modification time in nanoseconds. `pin` is the
    commit to read it at, where `uri` is in a repository; it says where the file is, not which one it is. `inode` and
    `ctime_ns` (the time of the last change of content or attributes, which no program can set) are known of local
    files only, 0 elsewhere; they say whether a file was touched, and not which one it is: a copy has others. `group`:
    the one of the source's groups that it is in; "" where there are none.
    """

    uri: str
    size: int
    version: str
    pin: str = field(default="", compare=False)
    inode: int = field(default=0, compare=False)
    ctime_ns: int = field(default=0, compare=False)
    group: str = field(default="", compare=False)

    def is_version(self, other: SourceFile) -> bool:
        """Whether both are of one size and version, as plans and datasets record them."""
        return (self.size, self.version) == (other.size, other.version)

    def was_touched(self, now: SourceFile) -> bool:
        """Whether the file at this URI was written, replaced or given other attributes between two looks at it.

        An inode that differs alone is none: FAT, mounted buckets and some network shares number files anew, and a
        file that replaces another one brings a change time of its own.
        """
        is_known = self.ctime_ns != 0 and now.ctime_ns != 0
        return not self.is_version(now) or (is_known and self.ctime_ns != now.ctime_ns)

    def was_replaced(self, now: SourceFile) -> bool:
        """Whether this is another file by now, and not one that was only given other attributes or written in place."""
        return not self.is_version(now) or (self.was_touched(now) and self.inode != now.inode)


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


def source_changed(was: SourceFile, now: SourceFile | None, when: str = "since the plan was made") -> ChangedError:
    """The error for a file that is not what the plan recorded; `now` None: it is gone."""
    way_back = _way_back(was)
    if now is None:
        words = f"was {describe_file(was)}; it no longer exists: it was deleted or moved"
    elif not was.is_version(now):
        replaced = ", another file" if was.inode and now.inode and was.inode != now.inode else ""
        words = f"was {describe_file(was)}; is {describe_file(now)}{replaced}"
    else:
        words = f"{describe_touch(was, now)}; size and modification time are the same"
        way_back = f"start the same command again if its text is unchanged; otherwise {way_back}"
    next_step = f"{way_back}; or start a new run: another output.uri, or a new rerunToken where output.uri holds "
    return ChangedError("SourceChanged", f"{was.uri} changed {when}: {words}", next_step=next_step + "{rerunToken}")


def describe_file(file: SourceFile) -> str:
    """Size and version, for people: a modification time as a date."""
    if not file.version.startswith(MTIME):
        return f"{counted(file.size, 'byte')}, {file.version}"
    return f"{counted(file.size, 'byte')}, modified {iso_date(int(file.version.removeprefix(MTIME)))}"


def describe_touch(was: SourceFile, now: SourceFile) -> str:
    """What a file of equal size and modification time says of a change."""
    times = f"its change time was {iso_date(was.ctime_ns)}, is {iso_date(now.ctime_ns)}"
    if was.inode != now.inode:
        return f"it was replaced by another file: its inode was {was.inode}, is {now.inode}, and {times}"
    return f"it was written to, or its permissions, owner or links changed: {times}"


def iso_date(time_ns: int) -> str:
    """UTC, to the nanosecond, as `touch -d` takes it."""
    seconds, rest = divmod(time_ns, 10**9)
    try:
        date = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a file system may hold any number
        return f"{seconds} s after 1970"
    return f"{date:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _way_back(was: SourceFile) -> str:
    if not was.version.startswith(MTIME):
        return "put the planned file back, and start the same command again: finished work is kept"
    date = iso_date(int(was.version.removeprefix(MTIME)))
    return (
        "put the planned file back with its modification time (cp -p, rsync -t; where its bytes are the planned ones: "
        f"touch -d {date} {shlex.quote(was.uri)}), and start the same command again: finished work is kept"
    )


def first_file_difference(was: Iterable[SourceFile], now: Iterable[SourceFile]) -> str | None:
    """The first file that is not the same in both, in words; None where all are, in the same order."""
    old, new = list(was), list(now)
    if {file.uri for file in old} != {file.uri for file in new}:
        came, gone = _not_in(old, new), _not_in(new, old)
        words = [f"new: {came}"] * bool(came) + [f"gone: {gone}"] * bool(gone)
        return f"the source has {counted(len(new), 'file')}, it had {len(old):,}; {'; '.join(words)}"
    for a, b in zip(old, new, strict=False):
        if a.uri != b.uri:
            return f"the source lists {b.uri} where it listed {a.uri}"
        if a != b:
            return f"{a.uri}: was {describe_file(a)}; is {describe_file(b)}"
        if a.group != b.group:
            return f"{a.uri}: was in {_group_words(a)}; is in {_group_words(b)}"
    return None


def _group_words(file: SourceFile) -> str:
    return f"group {file.group}" if file.group else "no group"


def _not_in(known: Iterable[SourceFile], files: Iterable[SourceFile]) -> str:
    """The first of `files` that are not known, and how many more; "" where all are."""
    names = {file.uri for file in known}
    unknown = [file.uri for file in files if file.uri not in names]
    return unknown[0] + (f" and {len(unknown) - 1:,} more" if unknown[1:] else "") if unknown else ""
