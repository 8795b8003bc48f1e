"""Recognizes files that are not text, JSON lines or Parquet: archives, other compressions, tables.

They are refused whatever `source.format` says, by their first bytes, stored ones or, inside gzip and zstd, decompressed
ones: a tar that is read as text puts its headers into the corpus. Pure: bytes and a name. A name alone decides only
about tables without magic bytes.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from itertools import pairwise

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.commands import THEN, before_command, beside, feed, shell_name
from tokenization_worker.readers.document_batch import WHAT_TO_DO, Compression, CorruptFileError, FileOutcome

UNPACK = {Compression.NONE: "cat", Compression.GZIP: "zcat", Compression.ZSTD: "zstdcat"}
"""The command that writes a stored file's content to standard output."""

_GIVE = "give the files that are in it to source.uris"
_CONVERT = "convert it to JSON lines or Parquet"

_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (
        b"PK\x03\x04",
        "a zip archive (or a document in one, such as .docx, .xlsx, .epub)",
        f"unzip {{name}}; then {_GIVE}",
    ),
    (b"PK\x05\x06", "an empty zip archive", "leave it out"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", f"7z x {{name}}; then {_GIVE}"),
    (b"Rar!\x1a\x07", "a RAR archive", f"unrar x {{name}}; then {_GIVE}"),
    (b"BZh", "compressed with bzip2", "bunzip2 {name}"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unxz {name}"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "unlz4 {name}"),
    (b"LZIP\x01", "compressed with lzip", "lzip -d {name}"),
    (b"\x1f\x9d", "compressed with compress", "uncompress {name}"),
    (b"ARROW1\x00\x00", "an Arrow file", "{arrow}"),
    (b"FEA1\x00\x00\x00\x00", "a Feather file", "{arrow}"),
    (b"Obj\x01", "an Avro file", _CONVERT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _CONVERT),
    (
        b"SQLite format 3\x00",
        "an SQLite database",
        "sqlite3 -readonly -json {name} 'SELECT ...' | jq -c '.[]' > {name}.jsonl",
    ),
    (b"\x93NUMPY", "a numpy array", "leave it out, or give the text that it was made from"),
    (b"GGUF", "a model file (GGUF)", "leave it out"),
    (b"%PDF-", "a PDF document", "pdftotext {name}"),
    (
        b"version https://git-lfs.github.com/spec/v1\noid ",
        "a Git LFS pointer in place of the file itself",
        "git lfs pull, in the repository of {name}",
    ),
)
_ARROW = (
    "python3 -c 'import sys, pyarrow.feather as f, pyarrow.parquet as p; "
    'p.write_table(f.read_table(sys.argv[1]), sys.argv[1] + ".parquet")\' {name}'
)
_OCTAL = re.compile(rb" *[0-7]+[ \0]*")
_TABLES = {".csv": b",", ".tsv": b"\t"}
_DELIMITERS = b",;\t|"
_QUOTED = re.compile(rb'"[^"]*"?')
_ROWS_TO_LINES = (
    "import csv, io, json, os, sys; "
    'out = open(sys.argv[1], "x"); '
    "sys.excepthook = lambda kind, error, _: (os.remove(out.name), "
    'print("the table is not UTF-8:" if kind is UnicodeDecodeError else "failed:", error, file=sys.stderr)); '
    "csv.field_size_limit(1 << 30); "
    'rows = csv.DictReader(io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", newline=""), delimiter={delimiter}); '
    'out.writelines(json.dumps(row) + "\\n" for row in rows)'
)
"""A program that never writes over a file, and leaves none where it fails."""


def check_supported(content: bytes, uri: str, compression: Compression) -> None:
    """Raise `CorruptFileError(UnsupportedFile)` if a file's first decompressed bytes are those of something else."""
    found = _kind_of(content, compression)
    if found is None:
        return
    what, step = found
    stored = name = shell_name(uri)
    around = "" if compression is Compression.NONE else f" inside {compression.value.lower()}"
    if around and "{name}" in step:
        base = posixpath.basename(uri)
        name = beside(uri, posixpath.splitext(base)[0] or base)
        step = f"{UNPACK[compression]} < {stored} > {name} && {step}"
    if "{" in step:
        step = before_command(uri) + step
    step = step.replace("{arrow}", _ARROW).replace("{name}", name).replace("{stored}", stored)
    raise CorruptFileError(
        FileOutcome.UNSUPPORTED_FILE,
        None,
        f"it is {what}{around}, expected JSON lines, Parquet or text{WHAT_TO_DO}{step}",
    )


def _kind_of(content: bytes, compression: Compression) -> tuple[str, str] | None:
    """What else a file is, and what to do about it, with {name} in it; None for what may be a corpus."""
    for magic, what, step in _MAGIC:
        if content.startswith(magic) and _is_certain(content, magic):
            return what, step
    if _is_tar(content):
        if compression is Compression.NONE:
            return "a tar archive", f"tar -xf {{name}}; then {_GIVE}"
        return "a tar archive", f"tar -xf {{stored}}; then {_GIVE}"
    if compression is not Compression.NONE and content.startswith((b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")):
        packed = "gzip" if content.startswith(b"\x1f\x8b") else "zstd"
        return f"compressed twice: {packed}", "decompress it once"
    return None


def _is_certain(content: bytes, magic: bytes) -> bool:
    """Magic bytes that are letters may begin a text, too: what follows them must fit."""
    if magic == b"BZh":
        return content[3:4].isdigit() and content[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
    if magic == b"GGUF":
        return 0 < int.from_bytes(content[4:8], "little") < 256
    if magic == b"%PDF-":
        return content[5:6].isdigit() and content[6:7] == b"."
    return True


def _is_tar(content: bytes) -> bool:
    """By the sum over its first header: the word "ustar" may stand in a text, and formats before 1988 have no magic.

    Without it the fields must be a header's, too: the NUL behind its name stands in no text.
    """
    header = content[:512]
    if len(header) < 512 or not (header[257:262] == b"ustar" or _has_tar_fields(header)):
        return False
    digits = header[148:156].strip(b" \0")
    if not _OCTAL.fullmatch(digits):
        return False
    summed = header[:148] + b" " * 8 + header[156:]
    total = sum(summed)
    of_signed_bytes = total - 256 * sum(byte >= 128 for byte in summed)  # as some old programs sum
    return int(digits, 8) in (total, of_signed_bytes)


def _has_tar_fields(header: bytes) -> bool:
    """A name with a NUL behind it; mode, owner, group, size and time as octal numbers."""
    fields = (header[start:end] for start, end in pairwise((100, 108, 116, 124, 136, 148)))
    return header.find(b"\0", 0, 100) > 0 and all(map(_OCTAL.fullmatch, fields))


def refuse_table(content: bytes, uri: str, name: str, compression: Compression) -> None:
    """Raise `SpecError("SourceInvalid")` for a name of comma- or tab-separated rows.

    `content` is its beginning, `name` the name without `.gz` or `.zst`.
    """
    suffix = posixpath.splitext(name)[1].lower()
    if suffix not in _TABLES:
        return
    delimiter = json.dumps(_delimiter_of(content, _TABLES[suffix]).decode())
    program = shlex.quote(_ROWS_TO_LINES.format(delimiter=delimiter))
    target = f"lines-{posixpath.basename(name)}.jsonl"
    command = feed(uri, UNPACK[compression], f"python3 -c {program} {beside(uri, target)}") + THEN
    raise SpecError(
        "SourceInvalid",
        f"{uri} is a table ({suffix}); expected JSON lines, Parquet or text",
        next_step=f"convert it: {command}; only if each whole file, or "
        "each piece between separators, is one text, set source.format to Text",
    )


def _delimiter_of(content: bytes, usual: bytes) -> bytes:
    """What separates the names in a table's first line; `usual` where none of the known delimiters stands there."""
    names = _QUOTED.sub(b"", content.lstrip().partition(b"\n")[0])
    most = max(_DELIMITERS, key=lambda delimiter: (names.count(delimiter), delimiter == usual[0]))
    return bytes([most]) if names.count(most) else usual
