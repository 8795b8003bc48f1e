"""Detects a file's compression by magic bytes, and its format by magic, suffix or first character.

Owns the order of these tests and the refusals that need only the first bytes: an empty upload, UTF-16, a
format that cannot be told; what is no corpus at all is known by `archives`. Decisions are pure (bytes and a
name); only `kind_of_source` opens a file. A suffix never overrules magic bytes, and `source.format` never
overrules the compression.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.commands import COMPRESSION_SUFFIXES, convert
from tokenization_worker.readers.decompress import Readable, StoredBytes, read_blocks
from tokenization_worker.readers.detection.archives import UNPACK, check_supported, refuse_table
from tokenization_worker.readers.detection.encodings import guess_wide, is_binary
from tokenization_worker.readers.document_batch import WHAT_TO_DO, Compression, CorruptFileError, FileKind, FileOutcome
from tokenization_worker.readers.encrypted_parquet import ENCRYPTED_MAGIC, encrypted_file

HEAD_BYTES = 64 << 10
"""How much of a file's beginning is looked at."""

UTF8_BOM = b"\xef\xbb\xbf"

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_FRAME_MAGIC = b"\x2a\x4d\x18"  # after one byte of 0x50..0x5f
_PARQUET_MAGIC = b"PAR1"
_PAGE_HEADER = b"\x15"
"""Behind the magic bytes the header of the first page: a control character, which no text has there."""
_FORMAT_OF_SUFFIX = {
    ".jsonl": SourceFormat.JSONL,
    ".ndjson": SourceFormat.JSONL,
    ".json": SourceFormat.JSONL,
    ".txt": SourceFormat.TEXT,
    ".md": SourceFormat.TEXT,
}
_TEXT_NAMES = tuple(suffix + packed for suffix in _FORMAT_OF_SUFFIX for packed in ("", *COMPRESSION_SUFFIXES))
_WIDE_BOMS = (  # the longer ones first: UTF-32 LE begins like UTF-16 LE
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def detect_kind(head: bytes, uri: str, format: SourceFormat) -> FileKind:
    """The kind of a file by its first stored bytes (`HEAD_BYTES`, or all of a smaller file).

    Raises `CorruptFileError` (EmptyFile, WrongEncoding, CorruptFile), or `SpecError("SourceInvalid")` where the
    format has to be written down.
    """
    check_not_empty(head, uri, format)
    compression = detect_compression(head)
    content = head if compression is Compression.NONE else _content_head(head, compression)
    return FileKind(detect_format(content, uri, format, compression), compression)


def kind_of_source(
    uri: str, size: int, format: SourceFormat, open_source: Callable[[str], Readable]
) -> FileKind | None:
    """The kind of a file for the plan; None if it is corrupt, which the reading of it will describe.

    Reads at most `HEAD_BYTES`. Raises `SpecError("SourceInvalid")` and what the store raises.
    """
    stream = open_source(uri)
    try:
        return detect_kind(StoredBytes(stream).peek(min(size, HEAD_BYTES)), uri, format)
    except CorruptFileError:
        return None
    finally:
        stream.close()


def is_named_parquet(uri: str, format: SourceFormat) -> bool:
    """Whether a file is to be Parquet, by `source.format` or its name."""
    return format is SourceFormat.PARQUET or (format is SourceFormat.AUTO and _suffix(uri) == ".parquet")


def may_be_parquet(uri: str, format: SourceFormat) -> bool:
    """Whether a file may be Parquet: one without a known name, too; one that is named as text is taken for text."""
    if format is not SourceFormat.AUTO:
        return format is SourceFormat.PARQUET
    return not uri.lower().endswith(_TEXT_NAMES)


def detect_compression(head: bytes) -> Compression:
    """By magic bytes only; a zstd file may begin with a skippable frame."""
    if head.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    if head.startswith(_ZSTD_MAGIC):
        return Compression.ZSTD
    if head[1:4] == _SKIPPABLE_FRAME_MAGIC and 0x50 <= head[0] <= 0x5F:
        return Compression.ZSTD
    return Compression.NONE


def check_not_empty(head: bytes, uri: str, format: SourceFormat) -> None:
    """Raise `CorruptFileError(EmptyFile)` for 0 bytes where a valid file has some."""
    if head:
        return
    suffix = _suffix(uri)
    if suffix in (*COMPRESSION_SUFFIXES, ".parquet"):
        what = suffix
    elif format is SourceFormat.PARQUET:
        what = "Parquet"
    else:
        return
    detail = f"0 bytes, but a {what} file is never empty; an upload may have failed"
    raise CorruptFileError(FileOutcome.EMPTY_FILE, 0, detail)


def may_be_empty(uri: str, format: SourceFormat) -> bool:
    """Whether a file of 0 bytes is a valid file without documents."""
    try:
        check_not_empty(b"", uri, format)
    except CorruptFileError:
        return False
    return True


def detect_format(content: bytes, uri: str, format: SourceFormat, compression: Compression) -> SourceFormat:
    """The format of a file by its first decompressed bytes; raises as `detect_kind`."""
    check_supported(content, uri, compression)
    found = _format_by_content_or_name(content, uri) if format is SourceFormat.AUTO else format
    if format is not SourceFormat.AUTO:
        _refuse_other_format(content, uri, format, compression)
    if found is SourceFormat.PARQUET:
        _check_parquet(content, compression)
        return found
    check_encoding(content, uri, compression)
    if found is not None:
        return found
    if _suffix(uri) == ".parquet":
        if content.startswith(ENCRYPTED_MAGIC):
            raise encrypted_file("the file")
        begins = f"begins with {content[:4]!r} instead of {_PARQUET_MAGIC!r}"
        raise CorruptFileError(FileOutcome.CORRUPT_FILE, 0, f"named .parquet but {begins}")
    if not content:
        return SourceFormat.JSONL  # it has no documents in any format
    refuse_table(content, uri, _without_compression_suffix(uri), compression)
    raise _unknown_format(content, uri, compression)


def _unknown_format(content: bytes, uri: str, compression: Compression) -> SpecError:
    begins = f"cannot detect the format of {uri}: no known suffix, and it begins with {content[:20]!r}"
    wide = guess_wide(content)
    if wide is not None and not is_binary(content.replace(b"\0", b"")):
        step = f"it looks like {wide} (a guess: check the result); convert it: "
        return SpecError("SourceInvalid", begins, next_step=step + conversion_command(uri, wide, compression))
    if is_binary(content):
        step = "leave it out of source.uris, or convert it to JSON lines, Parquet or text"
        return SpecError("SourceInvalid", f"{begins}: its content is binary", next_step=step)
    step = "if the file is text, add --source.format Text (in a manifest, source.format: Text); otherwise convert it"
    return SpecError("SourceInvalid", begins, next_step=step)


def _refuse_other_format(content: bytes, uri: str, format: SourceFormat, compression: Compression) -> None:
    """Raise `SpecError("SourceInvalid")` where the first bytes are those of another format than the one asked for."""
    is_parquet = content.startswith(_PARQUET_MAGIC + _PAGE_HEADER)
    is_object = content.removeprefix(UTF8_BOM).lstrip()[:1] == b"{"
    if format is not SourceFormat.PARQUET and is_parquet:
        raise _other_format(f"{uri} is Parquet, and source.format is {format.value}")
    if format is SourceFormat.PARQUET and is_object:
        raise _other_format(f"{uri} begins with '{{': it is not Parquet")
    if format is SourceFormat.JSONL and content and not is_object:
        refuse_table(content, uri, _without_compression_suffix(uri), compression)


def _other_format(message: str) -> SpecError:
    step = "leave source.format out: tokjob then detects the format of each file from its content and name"
    return SpecError("SourceInvalid", message, next_step=step)


def check_readable(content: bytes, uri: str, compression: Compression) -> None:
    """Raise `CorruptFileError` if `content` begins a text of a wide encoding, or a kind that is not read."""
    check_encoding(content, uri, compression)
    check_supported(content, uri, compression)


def check_encoding(content: bytes, uri: str, compression: Compression) -> None:
    """Raise `CorruptFileError(WrongEncoding)` if text begins with a UTF-16 or UTF-32 byte order mark."""
    for mark, encoding in _WIDE_BOMS:
        if content.startswith(mark):
            raise CorruptFileError(
                FileOutcome.WRONG_ENCODING,
                None,
                f"the text is {encoding} (byte order mark {mark.hex(' ')}), expected UTF-8{WHAT_TO_DO}"
                f"{conversion_command(uri, encoding, compression)}",
            )


def conversion_command(uri: str, encoding: str, compression: Compression) -> str:
    """The command that makes UTF-8 of a file, beside it."""
    name = "utf8-" + _without_compression_suffix(posixpath.basename(uri))
    return convert(uri, UNPACK[compression], f"iconv -f {encoding} -t UTF-8", name)


def _check_parquet(content: bytes, compression: Compression) -> None:
    """Raise unless the stored bytes can be Parquet themselves, which is read from its end."""
    if compression is Compression.NONE:
        return
    packing = compression.value.lower()
    if not content.startswith(_PARQUET_MAGIC):
        raise CorruptFileError(FileOutcome.CORRUPT_FILE, 0, f"expected Parquet, found a {packing} file")
    step = "decompress the file, since Parquet compresses its own pages"
    raise CorruptFileError(FileOutcome.CORRUPT_FILE, 0, f"Parquet inside {packing}{WHAT_TO_DO}{step}")


def _format_by_content_or_name(content: bytes, uri: str) -> SourceFormat | None:
    if content.startswith(_PARQUET_MAGIC):
        return SourceFormat.PARQUET
    by_suffix = _FORMAT_OF_SUFFIX.get(_suffix(_without_compression_suffix(uri)))
    if by_suffix is not None:
        return by_suffix
    return SourceFormat.JSONL if content.removeprefix(UTF8_BOM).lstrip()[:1] == b"{" else None


def _content_head(head: bytes, compression: Compression) -> bytes:
    """The first decompressed bytes of a head that may end inside a frame; damage is left to the reading."""
    try:
        return next(read_blocks(StoredBytes(io.BytesIO(head), read_bytes=4096), compression), b"")
    except CorruptFileError:
        return b""


def _suffix(uri: str) -> str:
    return posixpath.splitext(uri)[1].lower()


def _without_compression_suffix(uri: str) -> str:
    stem, suffix = posixpath.splitext(uri)
    return stem if suffix.lower() in COMPRESSION_SUFFIXES else uri
