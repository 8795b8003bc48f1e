"""Quotes the commands that a message shows, for a shell."""

from __future__ import annotations

import posixpath
import shlex

DOWNLOAD = "download the file; then: "
"""Before a command for a file that is not on this machine."""


def tokjob(*words: str) -> str:
    """`tokjob verify '/data/my corpus'`: this program's command of these words."""
    return shlex.join(("tokjob", *words))


def shell_name(uri: str) -> str:
    """A source file as a shell takes it from any folder: its path; of a file in a store its bare name."""
    return shlex.quote(posixpath.basename(uri) if _is_remote(uri) else uri)


def beside(uri: str, name: str) -> str:
    """A new file called `name` in the folder of a source file, as a shell takes it."""
    return shlex.quote(name if _is_remote(uri) else posixpath.join(posixpath.dirname(uri), name))


def before_command(uri: str) -> str:
    """What has to be done before a command can read `uri`, in words; "" for a file on this machine."""
    return DOWNLOAD if _is_remote(uri) else ""


COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd")
_LINES = (".jsonl", ".ndjson", ".json")

THEN = "; then give the new file to source.uris in place of the old one, or move the old one away"
"""Behind a command that writes a new file beside a source file: a folder or glob would match both."""


def feed(uri: str, unpack: str, command: str) -> str:
    """A line for a shell that gives a file's content to `command`, which does not start where the file is missing."""
    source = shell_name(uri)
    if unpack == "cat":
        return f"{before_command(uri)}{command} < {source}"
    return f"{before_command(uri)}test -f {source} && {unpack} {source} | {command}"


def convert(uri: str, unpack: str, command: str, name: str) -> str:
    """A line for a shell that pipes a file through `command` into a new file `name` beside it, and what to do then.

    Where the file is missing it fails, and makes no empty file: a shell opens what is read before what is written.
    """
    return f"{feed(uri, unpack, command)} > {beside(uri, name)}{THEN}"


def lines_name(prefix: str, uri: str) -> str:
    """Of a new file of JSON lines beside `uri`, in plain text: `lines-a.jsonl` for `a.jsonl.gz`."""
    stem, suffix = posixpath.splitext(posixpath.basename(uri))
    name = stem if suffix.lower() in COMPRESSION_SUFFIXES else stem + suffix
    return f"{prefix}-{name}" if name.lower().endswith(_LINES) else f"{prefix}-{name}.jsonl"


def _is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")
