"""Archives, other compressions and tables are known by their bytes, and refused whatever `source.format` says."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from support.engine.inline import inline
from support.faults.hostile import documents, tar_of
from support.runs import make_job
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.detection.detect import kind_of_source
from tokenization_worker.readers.document_batch import Compression, CorruptFileError, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.head import read_head
from tokenization_worker.readers.open import read_documents
from tokenization_worker.run.run import run_job
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.decoders.source import read_records

LINES = documents([f"document {n}" for n in range(100)])


def tar(format: int = tarfile.USTAR_FORMAT, name: str = "a.jsonl") -> bytes:
    return tar_of(LINES, format, name)


def tar_v7(content: bytes, *, is_signed: bool = False) -> bytes:
    """The same tar as programs before 1988 wrote it: no magic, and numbers with blanks before and behind them."""
    header = bytearray(content[:512])
    header[257:] = bytes(512 - 257)
    for start, end in ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148)):
        number = int(header[start:end].rstrip(b"\0 "), 8)
        header[start:end] = b"%*o " % (end - start - 2, number) + (b"\0" if end - start == 8 else b" ")
    return with_sum(bytes(header) + content[512:], is_signed=is_signed)


def with_sum(content: bytes, *, is_signed: bool = False) -> bytes:
    """The content with the sum over its first header, as tar has it."""
    header = content[:148] + b" " * 8 + content[156:512]
    total = sum(byte - 256 * (is_signed and byte > 127) for byte in header)
    return content[:148] + b"%6o  " % total + content[156:]


def zipped() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.jsonl", LINES)
    return sink.getvalue()


def saved() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(100))
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    feather.write_feather(pa.table({"text": ["x"]}), sink)
    return sink.getvalue()


def database(folder: Path) -> bytes:
    path = folder / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (text)")
    connection.close()
    return path.read_bytes()


FOREIGN = {
    "tar": ("a.tar", tar(), "tar -xf /data/a.tar"),
    "GNU tar": ("a.tar", tar(tarfile.GNU_FORMAT), "tar -xf /data/a.tar"),
    "pax tar": ("a.tar", tar(tarfile.PAX_FORMAT), "tar -xf /data/a.tar"),
    "v7 tar": ("a.txt", tar_v7(tar()), "tar -xf /data/a.txt"),
    "v7 tar of signed bytes": ("a.tar", tar_v7(tar(name="été.jsonl"), is_signed=True), "tar -xf /data/a.tar"),
    "v7 tar in zstd": ("a.txt.zst", zstd.compress(tar_v7(tar())), "tar -xf /data/a.txt.zst"),
    "tar named text": ("a.txt", tar(), "tar -xf /data/a.txt"),
    "tar in gzip": ("a.tar.gz", gzip.compress(tar()), "tar -xf /data/a.tar.gz"),
    "tar in zstd": ("a.tgz", zstd.compress(tar()), "tar -xf /data/a.tgz"),
    "zip": ("a b.zip", zipped(), "unzip '/data/a b.zip'"),
    "zip in gzip": ("a.zip.gz", gzip.compress(zipped()), "zcat < /data/a.zip.gz > /data/a.zip && unzip /data/a.zip"),
    "bzip2": ("a.jsonl.bz2", bz2.compress(LINES), "bunzip2 /data/a.jsonl.bz2"),
    "bzip2 of nothing": ("a.jsonl.bz2", bz2.compress(b""), "bunzip2"),
    "xz": ("a.jsonl.xz", lzma.compress(LINES), "unxz /data/a.jsonl.xz"),
    "7z": ("a.7z", b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(40), "7z x /data/a.7z"),
    "arrow": ("a.arrow", arrow(), "pyarrow"),
    "feather": ("a.feather", b"FEA1" + bytes(40), "pyarrow"),
    "GGUF": ("a.gguf", b"GGUF\x03\x00\x00\x00" + bytes(40), "leave it out"),
    "numpy": ("a.npy", saved(), "leave it out"),
    "PDF": ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "pdftotext /data/a.pdf"),
    "Git LFS pointer": (
        "a.jsonl",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
        "git lfs pull, in the repository of /data/a.jsonl",
    ),
    "gzip in zstd": ("a.jsonl.gz.zst", zstd.compress(gzip.compress(LINES)), "decompress it once"),
}
FORMATS = [SourceFormat.AUTO, SourceFormat.TEXT, SourceFormat.JSONL]


@pytest.mark.parametrize(("name", "content", "command"), FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_what_is_no_corpus_is_refused_whatever_the_format(
    name: str, content: bytes, command: str, format: SourceFormat
) -> None:
    options = ReadOptions(format, "text", None, 1 << 20)
    source = FileSlice(0, f"/data/{name}", len(content), "")
    with pytest.raises(CorruptFileError) as raised:
        list(read_documents(source, options, lambda _: io.BytesIO(content)))
    assert raised.value.outcome == "UnsupportedFile"
    assert command in raised.value.detail
    assert "set source.format" not in raised.value.detail
    head = read_head(source.uri, len(content), options, 1000, lambda _: io.BytesIO(content))
    assert head.damage is not None and head.damage.outcome == "UnsupportedFile"
    assert kind_of_source(source.uri, len(content), format, lambda _: io.BytesIO(content)) is None
    with pytest.raises(CorruptSource) as verified:
        list(read_records(io.BytesIO(content), source.uri, SourceRules(format, "text", None, 1 << 20)))
    assert verified.value.outcome == "UnsupportedFile"


def test_the_next_step_of_a_run_that_meets_an_archive_is_its_command(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar()))
    job = make_job(tmp_path / "a.tar.gz", tmp_path / "out", tokenizer={"name": "bytes"})
    for start in (lambda: preview_run(job, 1), lambda: run_job(job, executor=inline())):
        with pytest.raises(DataError) as raised:
            start()
        assert raised.value.message.endswith(
            "a.tar.gz: it is a tar archive inside gzip, expected JSON lines, Parquet or text (1 of 1 file cannot be "
            "read; maxCorruptFiles allows 0)"
        )
        assert raised.value.next_step.startswith(
            f"tar -xf {tmp_path}/a.tar.gz; then give the files that are in it to source.uris; or raise maxCorruptFiles"
        )


def test_a_database_is_refused(tmp_path: Path) -> None:
    test_what_is_no_corpus_is_refused_whatever_the_format("a.db", database(tmp_path), "sqlite3", SourceFormat.TEXT)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD], ids=str)
@pytest.mark.parametrize(("start", "end"), [(0, 100), (100, 200), (200, -1)])
def test_every_slice_of_an_archive_gives_the_same_outcome(compression: Compression, start: int, end: int) -> None:
    content = gzip.compress(tar()) if compression is Compression.GZIP else zstd.compress(tar())
    kind = FileKind(SourceFormat.TEXT, compression)
    options = ReadOptions(SourceFormat.TEXT, "text", b"\n", 1 << 20)
    with pytest.raises(CorruptFileError) as raised:
        list(
            read_documents(
                FileSlice(0, "a", len(content), "", start, end, kind), options, lambda _: io.BytesIO(content)
            )
        )
    assert raised.value.outcome == "UnsupportedFile"


TEXTS = {
    "the word ustar where tar has it": b"x" * 257 + b"ustar " + b"y" * 300,
    "a v7 header with another sum": tar_v7(tar()).replace(b"a.jsonl", b"b.jsonl"),
    "a v7 header with a size that is no number": with_sum(tar_v7(tar()).replace(b" %o " % len(LINES), b" size ")),
    "a v7 header with blanks for NULs": with_sum(tar_v7(tar()).replace(b"\0", b" ")),
    "ustar and digits": b"0" * 257 + b"ustar\x00" + b"0" * 300,
    "PK": b"PK is a kind of key",
    "BZh": b"BZh9 is a kind of magic",
    "ORC": b"ORC and ELF",
    "GGUF": b"GGUF is a file format",
    "PDF": b"%PDF- is how they begin",
    "Obj": b"Obj\x02",
    "LZIP": b"LZIP is a program",
    "FEA1": b"FEA1 is a word",
    "ARROW1": b"ARROW1 is a word",
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_texts_that_only_look_like_it_are_read(content: bytes, pack: object) -> None:
    packed = pack(content)  # type: ignore[operator]
    options = ReadOptions(SourceFormat.TEXT, "text", None, 1 << 20)
    [batch] = read_documents(FileSlice(0, "a.txt", len(packed), ""), options, lambda _: io.BytesIO(packed))
    assert batch.texts == [content.decode()]
    rules = SourceRules(SourceFormat.TEXT, "text", None, 1 << 20)
    assert [record.text for record in read_records(io.BytesIO(packed), "a.txt", rules)] == [content.decode()]


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv.gz", "rows.CSV"])
def test_a_table_of_rows_is_refused_with_the_command_that_converts_it(name: str, tmp_path: Path) -> None:
    rows = b"id,text\n1,hello\n"
    content = gzip.compress(rows) if name.endswith(".gz") else rows
    for format in (SourceFormat.AUTO, SourceFormat.JSONL):
        with pytest.raises(SpecError) as raised:
            kind_of_source(f"/data/{name}", len(content), format, lambda _: io.BytesIO(content))
        assert raised.value.reason == "SourceInvalid"
        assert "csv.DictReader" in str(raised.value.next_step)
        assert ("zcat" if name.endswith(".gz") else "< /data/rows") in str(raised.value.next_step)
        kind = kind_of_source(f"/data/{name}", len(LINES), format, lambda _: io.BytesIO(LINES))
        assert kind is not None and kind.format is SourceFormat.JSONL
    kind = kind_of_source(f"/data/{name}", len(content), SourceFormat.TEXT, lambda _: io.BytesIO(content))
    assert kind is not None and kind.format is SourceFormat.TEXT


TABLES = {
    "commas": b'text,n\n"two\nlines, quoted",1\nx,2\n',
    "a byte order mark": b'\xef\xbb\xbftext,n\n"two\nlines, quoted",1\nx,2\n',
    "semicolons": b'text;n\n"two\nlines, quoted";1\nx;2\n',
    "tabs and CR": b'text\tn\r\n"two\nlines, quoted"\t1\r\nx\t2\r\n',
    "bars and quotes": b'"text"|"n"\n"two\nlines, quoted"|1\nx|2\n',
}


def _run_command_for(path: Path) -> subprocess.CompletedProcess[bytes]:
    content = path.read_bytes()
    with pytest.raises(SpecError) as raised:
        kind_of_source(str(path), len(content), SourceFormat.AUTO, lambda _: io.BytesIO(content))
    command = str(raised.value.next_step).removeprefix("convert it: ").partition("; then give the new file")[0]
    return subprocess.run(command, shell=True, check=False, cwd=path.parent, capture_output=True, timeout=60)


@pytest.mark.parametrize("content", TABLES.values(), ids=list(TABLES))
def test_the_printed_command_makes_lines_of_a_table(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    (tmp_path / "rows.jsonl").write_text("a neighbour")
    assert _run_command_for(tmp_path / "rows.csv").returncode == 0
    lines = (tmp_path / "lines-rows.csv.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "two\nlines, quoted", "n": "1"}, {"text": "x", "n": "2"}]
    assert (tmp_path / "rows.jsonl").read_text() == "a neighbour"


def test_the_printed_command_for_a_table_never_writes_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TABLES["commas"])
    (tmp_path / "lines-rows.csv.jsonl").write_text("kept")
    ran = _run_command_for(tmp_path / "rows.csv")
    assert ran.returncode and b"File exists" in ran.stderr
    assert (tmp_path / "lines-rows.csv.jsonl").read_text() == "kept"


def test_the_printed_command_for_a_table_that_is_not_utf8_says_so_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("text,n\n\u00e9t\u00e9,1\n".encode("latin-1"))
    ran = _run_command_for(tmp_path / "rows.csv")
    assert ran.returncode and b"the table is not UTF-8: " in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
