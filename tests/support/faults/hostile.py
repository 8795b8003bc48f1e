"""Damaged, odd and hostile source files, one for each rule of the bad-input policy, made on the spot.

Each says what must come of it with default options (`textField: text`, `format: Auto`): the file's outcome, how many
documents are usable, and how many are quarantined for which reason. Nothing here is random.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import encryption

from tokenization_worker.readers.decompress import zstd

TEXTS = [f"Document {n}: the quick brown fox, Straße, 日本語 and 🦊. " * (n % 7 + 1) for n in range(20)]


@dataclass(frozen=True)
class Hostile:
    """A file and what must come of it; `documents` counts only if the outcome is Read."""

    rule: str
    name: str
    content: bytes
    outcome: str = "Read"
    documents: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.rule.replace(" ", "-")


def jsonl(*values: object) -> bytes:
    """JSON lines; bytes stand for a raw line."""
    return b"".join((v if isinstance(v, bytes) else orjson.dumps(v)) + b"\n" for v in values)


def documents(texts: list[str]) -> bytes:
    return jsonl(*({"id": str(n), "text": text} for n, text in enumerate(texts)))


def tar_of(content: bytes, format: int = tarfile.USTAR_FORMAT, name: str = "a.jsonl") -> bytes:
    """An archive with `content` as its only file."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def skippable_frame(content: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A53, len(content)) + content


def with_dictionary(content: bytes) -> bytes:
    """A frame that needs a dictionary, whose number stands in its header."""
    trained = zstd.train_dict([b'{"id": "%d", "text": "some words %d"}' % (n, n) for n in range(5000)], 1024)
    return zstd.compress(content, zstd_dict=trained)


def zstd_long_window(content: bytes, window_log: int) -> bytes:
    """A frame that declares a window of 2**window_log bytes and no content size."""
    options = {
        zstd.CompressionParameter.window_log: window_log,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(content) + compressor.flush()


def parquet(column: object, name: str = "text", *, schema: pa.Schema | None = None, **options: object) -> bytes:
    table = pa.table({"id": pa.array(range(len(column))), name: column}, schema=schema)
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def encrypted_parquet(columns: list[str], *, plain_footer: bool = True) -> bytes:
    """A file with a column before the text and one behind it, of which `columns` are encrypted."""
    rows = range(len(TEXTS))
    table = pa.table({"author": [f"author {n}" for n in rows], "text": TEXTS, "url": [f"url {n}" for n in rows]})
    factory = encryption.CryptoFactory(lambda _: _BareKeys())
    properties = factory.file_encryption_properties(
        encryption.KmsConnectionConfig(),
        encryption.EncryptionConfiguration("footer", column_keys={"key": columns}, plaintext_footer=plain_footer),
    )
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=7)
    return sink.getvalue()


class _BareKeys(encryption.KmsClient):  # type: ignore[misc]
    """Stores the keys as they are."""

    def __init__(self) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return b64encode(key)

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return b64decode(key)


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]


def named_gzip(content: bytes, name_bytes: int, *, checksum: bool = False) -> bytes:
    """A gzip file whose header has a name of so many bytes."""
    header = b"\x1f\x8b\x08" + bytes([10 if checksum else 8]) + bytes(5) + b"\x03" + b"n" * name_bytes + b"\0"
    if checksum:
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    return header + gzip.compress(content, mtime=0)[10:]


def hostile_files() -> list[Hostile]:
    """All of them; names are unique."""
    return [*_compressed(), *_named(), *_encodings(), *_lines(), *_parquet()]


def _compressed() -> list[Hostile]:
    plain = documents(TEXTS)
    half = len(TEXTS) // 2
    gz, zst = gzip.compress(plain, mtime=0), zstd.compress(plain)
    checked = {zstd.CompressionParameter.checksum_flag: 1}
    summed = zstd.compress(plain, options=checked)
    two_members = gzip.compress(documents(TEXTS[:half])) + gzip.compress(documents(TEXTS[half:]))
    two_frames = zstd.compress(documents(TEXTS[:half])) + zstd.compress(documents(TEXTS[half:]))
    tiny_frames = b"".join(zstd.compress(documents([text])) for text in TEXTS)
    stream = zstd.ZstdCompressor()
    no_size = stream.compress(plain) + stream.flush()
    corrupt = "CorruptFile"
    return [
        Hostile("gzip truncated", "truncated.jsonl.gz", gz[: len(gz) * 6 // 10], corrupt),
        Hostile("gzip without its trailer", "no_trailer.jsonl.gz", gz[:-8], corrupt),
        Hostile("gzip header only", "header.jsonl.gz", gz[:10], corrupt),
        Hostile("gzip wrong CRC", "crc.jsonl.gz", flip(gz, len(gz) - 6), corrupt),
        Hostile("gzip wrong length", "isize.jsonl.gz", flip(gz, len(gz) - 2), corrupt),
        Hostile("gzip flipped bit", "bitflip.jsonl.gz", flip(gz, len(gz) // 2), corrupt),
        Hostile("gzip garbage after the end", "garbage.jsonl.gz", gz + b"garbage after the end", corrupt),
        Hostile("gzip cut second member", "second_member.jsonl.gz", two_members[:-20], corrupt),
        Hostile("zstd truncated", "truncated.jsonl.zst", zst[: len(zst) * 6 // 10], corrupt),
        Hostile("zstd last byte missing", "last_byte.jsonl.zst", summed[:-1], corrupt),
        Hostile("zstd wrong checksum", "checksum.jsonl.zst", flip(summed, len(summed) - 1), corrupt),
        Hostile("zstd flipped bit", "bitflip.jsonl.zst", flip(summed, len(summed) // 2), corrupt),
        Hostile("zstd garbage after the end", "garbage.jsonl.zst", zst + b"garbage after the end", corrupt),
        Hostile("zstd three bytes after the end", "three.jsonl.zst", zst + b"abc", corrupt),
        Hostile("zstd cut second frame", "second_frame.jsonl.zst", two_frames[:-20], corrupt),
        Hostile("zstd cut skippable frame", "skip_cut.jsonl.zst", zst + skippable_frame(b"x" * 99)[:50], corrupt),
        Hostile("gzip long name", "long_name.jsonl.gz", named_gzip(plain, 600_000), corrupt),
        Hostile("gzip name as long as may be", "named.jsonl.gz", named_gzip(plain, (512 << 10) - 11), documents=20),
        Hostile("gzip name one byte too long", "too_named.jsonl.gz", named_gzip(plain, (512 << 10) - 10), corrupt),
        Hostile("gzip header checksum", "hcrc.jsonl.gz", named_gzip(plain, 9, checksum=True), documents=20),
        Hostile("gzip header wrong checksum", "whcrc.jsonl.gz", flip(named_gzip(plain, 9, checksum=True), 11), corrupt),
        Hostile("gzip several members", "members.jsonl.gz", two_members, documents=20),
        Hostile("gzip zero padding", "padded.jsonl.gz", gz + bytes(512), documents=20),
        Hostile("gzip of nothing", "nothing.jsonl.gz", gzip.compress(b"")),
        Hostile("zstd several frames", "frames.jsonl.zst", two_frames, documents=20),
        Hostile("zstd a frame a document", "tiny_frames.jsonl.zst", tiny_frames, documents=20),
        Hostile("zstd skippable frame first", "skippable.jsonl.zst", skippable_frame(b"note") + zst, documents=20),
        Hostile("zstd skippable frame last", "skippable_last.jsonl.zst", zst + skippable_frame(b""), documents=20),
        Hostile("zstd without content size", "no_size.jsonl.zst", no_size, documents=20),
        Hostile("zstd long window", "long_window.jsonl.zst", zstd_long_window(plain, 29), documents=20),
        Hostile("zstd of nothing", "nothing.jsonl.zst", zstd.compress(b"")),
        Hostile("gzip text", "novel.txt.gz", gzip.compress(b"one novel\n"), documents=1),
    ]


def _named() -> list[Hostile]:
    plain = documents(TEXTS)
    return [
        Hostile("gzip named plain", "is_gzip.jsonl", gzip.compress(plain), documents=20),
        Hostile("zstd named gzip", "is_zstd.jsonl.gz", zstd.compress(plain), documents=20),
        Hostile("plain named gzip", "is_plain.jsonl.gz", plain, documents=20),
        Hostile("Parquet named JSONL", "is_parquet.jsonl", parquet(pa.array(TEXTS)), documents=20),
        Hostile("JSONL named Parquet", "is_jsonl.parquet", plain, documents=20),
        Hostile("text named Parquet", "is_text.parquet", b"not a Parquet file at all", "CorruptFile"),
        Hostile("JSONL without suffix", "part-00000", b"\n \n" + plain, documents=20),
        Hostile("0 bytes gzip", "empty.jsonl.gz", b"", "EmptyFile"),
        Hostile("0 bytes zst", "empty.jsonl.zst", b"", "EmptyFile"),
        Hostile("0 bytes zstd", "empty.txt.zstd", b"", "EmptyFile"),
        Hostile("0 bytes Parquet", "empty.parquet", b"", "EmptyFile"),
        Hostile("0 bytes JSONL", "empty.jsonl", b""),
        Hostile("0 bytes text", "empty.txt", b""),
    ]


def _encodings() -> list[Hostile]:
    plain = documents(TEXTS).decode()
    wide: list[tuple[str, Callable[[], bytes]]] = [
        ("utf16le", lambda: b"\xff\xfe" + plain.encode("utf-16-le")),
        ("utf16be", lambda: b"\xfe\xff" + plain.encode("utf-16-be")),
        ("utf32le", lambda: b"\xff\xfe\x00\x00" + plain.encode("utf-32-le")),
        ("utf32be", lambda: b"\x00\x00\xfe\xff" + plain.encode("utf-32-be")),
    ]
    bom = b"\xef\xbb\xbf"
    return [
        *(Hostile(f"{name} mark", f"{name}.jsonl", make(), "WrongEncoding") for name, make in wide),
        Hostile("utf16le mark in text", "utf16le.txt", wide[0][1](), "WrongEncoding"),
        Hostile("utf16le mark inside gzip", "utf16le.jsonl.gz", gzip.compress(wide[0][1]()), "WrongEncoding"),
        Hostile("UTF-8 mark", "bom.jsonl", bom + plain.encode(), documents=20),
        Hostile("UTF-8 mark inside zstd", "bom.jsonl.zst", zstd.compress(bom + plain.encode()), documents=20),
        Hostile("UTF-8 mark in text", "bom.txt", bom + b"a text", documents=1),
        Hostile("UTF-8 mark only", "bom_only.jsonl", bom),
        Hostile("text not UTF-8", "latin1.txt", "Straße".encode("latin-1"), quarantined={"InvalidUtf8": 1}),
    ]


def _lines() -> list[Hostile]:
    good = {"id": "g", "text": "good"}
    crlf = documents(TEXTS).replace(b"\n", b"\r\n\r\n \t\r\n").rstrip()
    invalid = [
        b'{"text": "cut',
        b'{"text": NaN}',
        b'{"text": "x"} trailing',
        b"{'text': 'single quotes'}",
        b'{"text": "lone surrogate \\ud800"}',
        b'{"text": "not UTF-8 \xff"}',
        b'{"text": "cut character \xe6\x97"}',
        b'{"text": "raw \x01 control"}',
        b"\xef\xbb\xbf" + orjson.dumps(good),
        b'{"text": "x", "deep": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    ]
    not_objects = [b"[1, 2]", b'"text"', b"17", b"null", b"true"]
    separators = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x00h"
    return [
        Hostile("invalid JSON", "invalid.jsonl", jsonl(good, *invalid, good), "Read", 2, {"InvalidJson": len(invalid)}),
        Hostile(
            "not an object", "array.jsonl", jsonl(good, *not_objects), "Read", 1, {"NotAnObject": len(not_objects)}
        ),
        Hostile("missing text", "missing.jsonl", jsonl(good, {"id": 1}, {}), "Read", 1, {"MissingText": 2}),
        Hostile("null text", "null.jsonl", jsonl(good, {"text": None}), "Read", 1, {"NullText": 1}),
        Hostile(
            "wrong text type",
            "type.jsonl",
            jsonl(good, *({"text": value} for value in (1, 1.5, True, ["x"], {"text": "x"}))),
            "Read",
            1,
            {"WrongTextType": 5},
        ),
        Hostile("cut last line", "cut.jsonl", documents(TEXTS)[:-30], "Read", 19, {"InvalidJson": 1}),
        Hostile("no final newline", "no_newline.jsonl", documents(TEXTS)[:-1], "Read", 20),
        Hostile("CRLF and blank lines", "crlf.jsonl", b"\r\n\n" + crlf, "Read", 20),
        Hostile("blank lines only", "blank.jsonl", b"\n \r\n\t\n   "),
        Hostile("duplicate key", "duplicate.jsonl", b'{"text": null, "text": "last"}\n', "Read", 1),
        Hostile("line separators inside text", "unicode.jsonl", jsonl({"text": separators}), "Read", 1),
        Hostile("raw line separators", "raw.jsonl", '{"text": "a\u2028b\u0085c"}\n'.encode(), "Read", 1),
        Hostile("empty text", "empty_text.jsonl", jsonl({"text": ""}, {"text": " \n"}), "Read", 2),
        Hostile("special token text", "special.jsonl", jsonl({"text": "<|endoftext|>"}), "Read", 1),
        Hostile(
            "odd ids",
            "ids.jsonl",
            jsonl(good, good, {"text": "x"}, *({"id": i, "text": "x"} for i in (None, 7, "a/../b", 1.5, []))),
            "Read",
            8,
        ),
        Hostile("zstd with a dictionary", "dictionary.jsonl.zst", with_dictionary(documents(TEXTS)), "CorruptFile"),
        Hostile(
            "zstd with a dictionary behind a frame",
            "late.jsonl.zst",
            zstd.compress(documents(TEXTS)) + with_dictionary(documents(TEXTS)),
            "CorruptFile",
        ),
        Hostile("many tiny documents", "tiny.jsonl.zst", zstd.compress(jsonl(good) * 20_000), "Read", 20_000),
        Hostile("whitespace run", "space.jsonl.zst", zstd.compress(jsonl({"text": " " * 1_000_000}, good)), "Read", 2),
    ]


def _parquet() -> list[Hostile]:
    strings = pa.array(TEXTS)
    whole = parquet(strings, compression="zstd")
    plain = parquet(strings, compression="none", write_page_checksum=True, use_dictionary=False)
    some_null = pa.array([text if n % 5 else None for n, text in enumerate(TEXTS)])
    raw = [text.encode() for text in TEXTS]
    nested = pa.array([{"text": text} for text in TEXTS])
    corrupt, mismatch = "CorruptFile", "SchemaMismatch"
    types = {
        "large_string": strings.cast(pa.large_string()),
        "string_view": strings.cast(pa.string_view()),
        "binary": pa.array(raw, pa.binary()),
        "large_binary": pa.array(raw, pa.large_binary()),
        "dictionary": strings.dictionary_encode(),
    }
    codecs = ["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
    required = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string(), nullable=False)])
    return [
        Hostile("Parquet truncated", "truncated.parquet", whole[: len(whole) * 6 // 10], corrupt),
        Hostile("Parquet magic only", "magic.parquet", b"PAR1PAR1", corrupt),
        Hostile("Parquet garbage after the end", "garbage.parquet", whole + b"garbage after the end", corrupt),
        Hostile("Parquet wrong page checksum", "checksum.parquet", flip(plain, plain.find(b"Document 7")), corrupt),
        Hostile("Parquet footer flipped", "footer.parquet", flip(whole, len(whole) - 6), corrupt),
        Hostile("Parquet no text column", "column.parquet", parquet(strings, "content"), mismatch),
        Hostile("Parquet text is a number", "number.parquet", parquet(pa.array(range(20))), mismatch),
        Hostile("Parquet text is a list", "list.parquet", parquet(pa.array([["x"]] * 20)), mismatch),
        Hostile("Parquet text is nested", "nested.parquet", parquet(nested, "doc"), mismatch),
        Hostile("Parquet no rows", "rows.parquet", parquet(pa.array([], pa.string()))),
        Hostile("Parquet null text", "null.parquet", parquet(some_null), "Read", 16, {"NullText": 4}),
        Hostile("Parquet text encrypted", "encrypted.parquet", encrypted_parquet(["text"]), corrupt),
        Hostile("Parquet another column encrypted", "author.parquet", encrypted_parquet(["author"]), documents=20),
        Hostile("Parquet footer encrypted", "all.parquet", encrypted_parquet(["text"], plain_footer=False), corrupt),
        Hostile("Parquet column of nulls", "nulls.parquet", parquet(pa.nulls(3)), "Read", 0, {"NullText": 3}),
        Hostile("Parquet column of nulls no rows", "no_nulls.parquet", parquet(pa.nulls(0))),
        Hostile(
            "Parquet not UTF-8",
            "utf8.parquet",
            parquet(pa.array([*raw[:-1], b"\xff\xfe"], pa.binary())),
            "Read",
            19,
            {"InvalidUtf8": 1},
        ),
        Hostile("Parquet required column", "required.parquet", parquet(strings, schema=required), documents=20),
        Hostile("Parquet a row a group", "groups.parquet", parquet(strings, row_group_size=1), documents=20),
        *(Hostile(f"Parquet {name}", f"{name}.parquet", parquet(a), documents=20) for name, a in types.items()),
        *(
            Hostile(
                f"Parquet codec {codec}", f"codec_{codec}.parquet", parquet(strings, compression=codec), documents=20
            )
            for codec in codecs
        ),
    ]
