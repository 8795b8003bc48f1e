"""Reads the file of a manifest, or refuses it and says what the file is.

A file of data in its place is a common slip: a glob that the shell has expanded, a forgotten `--source`. It is known by
its first bytes, and never read further.
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import re
import shlex
import stat
from pathlib import Path

from tokenization_worker.errors import SpecError
from tokenization_worker.host.current_folder import find_lost_folder

MOST_BYTES = 1 << 20
"""A manifest may have, also with its aliases written out; an API server takes 1.5 MiB. It parses in a second."""

_LOOK_BYTES = 64 << 10
"""Of a larger file: enough for most first records."""

_MAGIC = (
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x1f\x8b", "gzip data"),
    (b"PAR1", "a Parquet file"),
)
_WIDE = (
    ("UTF-32LE", "utf-32-le", 4),
    ("UTF-32BE", "utf-32-be", 4),
    ("UTF-16LE", "utf-16-le", 2),
    ("UTF-16BE", "utf-16-be", 2),
)
_FIELD = re.compile(r"\b(apiVersion|kind|metadata|spec)[\"']?\s*:")


def read_manifest_file(path: Path) -> str:
    """Return the text of a manifest; SpecError (SpecNotFound, SpecInvalid) where there is none."""
    try:
        if path.is_dir():
            raise _no_manifest(path, "a folder")
        with os.fdopen(_open_at_once(path), "rb") as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            data = file.read(_LOOK_BYTES if size > MOST_BYTES else MOST_BYTES + 1)  # a device has no size, and no end
    except PermissionError as error:
        raise SpecError(
            "SpecNotFound", f"this user may not read {path}", next_step="give this user read permission for the file"
        ) from error
    except OSError as error:
        if not path.is_absolute() and (lost := find_lost_folder()) is not None:
            raise lost from error
        near = _near_name(path) if isinstance(error, FileNotFoundError) else None
        raise SpecError(
            "SpecNotFound",
            f"{path}: {error.strerror or error}" + (f"; did you mean {near}?" if near else ""),
            next_step="give the path of a manifest (YAML); without one: --source, --tokenizer and --output",
        ) from error
    if not data and stat.S_ISFIFO(status.st_mode):
        raise _no_manifest(path, "a pipe to which no program writes")
    for magic, words in _MAGIC:
        if data.startswith(magic):
            raise _no_manifest(path, words)
    if size > MOST_BYTES:
        words = f"{size / 1e9:.1f} GB" if size > 10**8 else f"{size / 1e6:.1f} MB"
        is_json = _is_record(data.decode("utf-8", "replace")) or data.lstrip().startswith((b'{"', b'[{"'))
        raise _no_manifest(path, f"{words} of JSON records" if is_json else words)
    if len(data) > MOST_BYTES:
        raise _no_manifest(path, f"more than {MOST_BYTES >> 20} MiB")
    if (wide := _wide_encoding(data)) is not None:
        raise _other_encoding(path, wide[:6], wide)
    if b"\0" in data[:1024] or data[:1] == b"\x93":
        raise _no_manifest(path, "binary data")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if _FIELD.search(data.decode("latin-1")):
            raise _other_encoding(path, f"not UTF-8 at byte {error.start}", "ISO-8859-1") from error
        raise _no_manifest(path, f"not UTF-8 at byte {error.start}") from error
    if _is_record(text):
        raise _no_manifest(path, "JSON records")
    if not _is_empty(text) and not _FIELD.search(text):
        raise _no_manifest(path, "a text without apiVersion, kind, metadata and spec")
    return text


def _wide_encoding(data: bytes) -> str | None:
    """The name that iconv has for the UTF-32 or UTF-16 that a manifest is in; None where it is in neither."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # before UTF-16, of which one begins alike
        return "UTF-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    for name, encoding, size in _WIDE:
        if b"\0" in data[:size] and _FIELD.search(data[: len(data) // size * size].decode(encoding, "replace")):
            return name
    return None


def _other_encoding(path: Path, found: str, encoding: str) -> SpecError:
    copy = path.with_name(f"{path.stem}-utf8{path.suffix}")
    guess = "" if encoding.startswith("UTF") else " (a guess: check the result)"
    return SpecError(
        "SpecInvalid",
        f"{path}: the manifest is {found}, expected UTF-8",
        next_step=f"save it as UTF-8 (PowerShell: Out-File -Encoding utf8), or{guess}: iconv -f {encoding} -t UTF-8 < "
        f"{shlex.quote(str(path))} > {shlex.quote(str(copy))}",
    )


def _open_at_once(path: Path) -> int:
    """A descriptor to read from; a pipe's writer is not waited for: a read of a pipe without writers ends at once."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(fd, True)
    return fd


def _near_name(path: Path) -> Path | None:
    """A manifest in the same folder with a name like that of `path`."""
    folder = path.parent
    names = [each.name for each in folder.glob("*.y*ml")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return folder / near[0] if near else None


def _is_empty(text: str) -> bool:
    """Whether YAML finds nothing in it: blank lines, comments, marks of documents."""
    return all(line.strip() in ("", "---") or line.lstrip().startswith("#") for line in text.splitlines())


def _is_record(text: str) -> bool:
    """Whether the first of several lines is a JSON object, and no manifest."""
    first, _, rest = text.lstrip("\ufeff").strip().partition("\n")
    if not first.startswith("{") or not rest:
        return False
    try:
        found = json.loads(first)
    except ValueError:
        return False
    return isinstance(found, dict) and "apiVersion" not in found


def _no_manifest(path: Path, found: str) -> SpecError:
    return SpecError(
        "SpecInvalid",
        f"{path}: expected a manifest (YAML with apiVersion, kind, metadata, spec), found {found}",
        next_step=f"if it is the text to tokenize: tokjob run --source {path} --tokenizer ... --output ...; "
        "put a glob in quotes, so that the shell does not expand it",
    )
