"""Small Parquet files that decode to much: memory stays bounded, in a run's worker and in `verify`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.faults.hostile import TEXTS, parquet
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.document_batch import (
    Compression,
    CorruptFileError,
    FileKind,
    FileOutcome,
    FileSlice,
    ReadOptions,
)
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.parquet import text_column
from tokenization_worker.readers.parquet.file import SizedFile
from tokenization_worker.readers.parquet.find_column import find_text_column
from tokenization_worker.readers.parquet.page_sizes import Chunk, PageWalk
from tokenization_worker.readers.parquet.text_column import TextColumn
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders import parquet as verify_parquet
from tokenization_worker.verification.decoders.page_sizes import decoded_bytes, dictionary_values
from tokenization_worker.verification.decoders.source import read_records

MIB = 1 << 20
BOUND_MB = 400
"""Of a process that does nothing but read, 90 MB of which are Python and pyarrow."""


def repeated(size: int, rows: int, *, typed: bool = False) -> bytes:
    """Rows that all point to one value of a dictionary; `typed`: Arrow's schema, which is stored, says so, too."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["v" * size]))
    return written(column, store_schema=typed, dictionary_pagesize_limit=1 << 30)


def written(column: pa.Array, name: str = "text", **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({name: column}), sink, compression="zstd", **options)
    return sink.getvalue()


def nested(size: int, rows: int) -> bytes:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["v" * size]))
    struct = pa.StructArray.from_arrays([column], ["text"])
    return written(struct, "doc", store_schema=False, dictionary_pagesize_limit=1 << 30)


def after_small_ones() -> bytes:
    """Large values after so many small ones that the average tells nothing."""
    return written(pa.array(["x"] * 100_000 + ["y" * (4 * MIB)] * 40), use_dictionary=False)


def prefixes() -> bytes:
    """Each value is the one before it."""
    column = pa.array(["p" * MIB] * 300)
    return written(column, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})


def among_others(size: int = 8 * MIB) -> bytes:
    """Rows that point to one large value, and many that point to small ones: the dictionary is not most of it."""
    numbers = np.random.default_rng(1).integers(1, 1000, 80_000, dtype=np.int32)
    indices = pa.array(np.concatenate([np.zeros(100, np.int32), numbers]))
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["v" * size, *map(str, range(1000))]))
    return written(column, store_schema=False, dictionary_pagesize_limit=1 << 30)


def lying(content: bytes, says: int = 1000) -> bytes:
    """The file with a footer that says its column chunks have so few bytes when they are decompressed."""
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    ending = content[footer:]
    for group in range(metadata.num_row_groups):
        told = varint(metadata.row_group(group).column(0).total_uncompressed_size << 1)
        assert told in ending
        ending = ending.replace(told, varint(says << 1, len(told)))
    lies = content[:footer] + ending
    assert pq.ParquetFile(io.BytesIO(lies)).metadata.row_group(0).column(0).total_uncompressed_size == says
    return lies


def varint(number: int, size: int = 1) -> bytes:
    """Seven bits a byte, the last first; padded to `size`."""
    digits = []
    while number or len(digits) < size:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits[:-1], digits[-1] & 127])


BOMBS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "repeated 900 KB": (lambda: repeated(900_000, 1500), "text", "1500 0"),
    "repeated 900 KB, typed": (lambda: repeated(900_000, 1500, typed=True), "text", "1500 0"),
    "repeated 8 MiB": (lambda: repeated(8 * MIB, 150), "text", "150 0"),
    "repeated 8 MiB, nested": (lambda: nested(8 * MIB, 150), "doc.text", "150 0"),
    "repeated and too large": (lambda: repeated(65 * MIB, 40), "text", "0 40"),
    "large after small": (after_small_ones, "text", "100040 0"),
    "prefixes": (prefixes, "text", "300 0"),
    "among others": (among_others, "text", "80100 0"),
    "among others, lying": (lambda: lying(among_others()), "text", "80100 0"),
    "repeated, lying": (lambda: lying(repeated(8 * MIB, 150)), "text", "150 0"),
    "prefixes, lying": (lambda: lying(prefixes()), "text", "300 0"),
    "large after small, lying": (lambda: lying(after_small_ones()), "text", "100040 0"),
}
"""Files that are read by a process with a bound, and the documents in them, kept and refused. Those of repeated values
decode to three times the bound: more rows would take longer and prove no more."""

READ = """
import os
import sys
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.document_batch import FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.parquet import reader
from tokenization_worker.verification.decoders import parquet
from tokenization_worker.verification.decoders.source import read_records
from tokenization_worker.verification.claims import SourceRules

def read(kind, path, field):
    texts = refused = 0
    if kind == "run":
        options = ReadOptions(SourceFormat.AUTO, field, None, 64 << 20)
        source = FileSlice(0, path, os.path.getsize(path), "")
        for batch in read_documents(source, options, lambda uri: open(uri, "rb")):
            texts += len(batch.texts)
            refused += len(batch.rejected)
    else:
        rules = SourceRules(SourceFormat.AUTO, field, None, 64 << 20)
        for record in read_records(open(path, "rb"), path, rules):
            texts += record.text is not None
            refused += record.text is None
    # Of this process alone: what getrusage tells counts the one that it was forked from, too.
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(texts, refused, int(peak) // 1000, flush=True)

for line in sys.stdin:
    if not os.fork():
        read(*line.split())
        os._exit(0)
    if os.wait()[1]:
        print("died", flush=True)
"""
"""Reads each file that it is told in a process of its own, which has imported all that it needs."""


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    # An allocator that gives back at once what is freed: Arrow's own does so after some milliseconds.
    allocator = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    command, env = [sys.executable, "-c", READ], os.environ | allocator
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        yield process
        process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bombs")


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", ["run", "verify"])
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_decodes_to_much_is_read_in_bounded_memory(
    name: str, kind: str, folder: Path, reader: subprocess.Popen[str]
) -> None:
    make, field, counts = BOMBS[name]
    path = folder / f"{list(BOMBS).index(name)}.parquet"
    if not path.exists():
        path.write_bytes(make())
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(kind, path, field, file=reader.stdin, flush=True)
    found, _, peak_mb = reader.stdout.readline().rpartition(" ")
    assert found == counts
    bound = BOUND_MB if counts.split()[1] == "0" else BOUND_MB + 400  # one value of 65 MiB is its page, too
    assert int(peak_mb) < bound


ODD = {
    "mostly plain": pa.array([f"{n} " * 40 for n in range(4_000)]),
    "a few values": pa.array([TEXTS[n % 20] for n in range(4_000)]),
    "nulls among a few values": pa.array([TEXTS[n % 20] if n % 3 else None for n in range(4_000)]),
    "not UTF-8 among a few values": pa.array([b"\xff" if n % 20 == 7 else b"x%d" % (n % 20) for n in range(4_000)]),
    "too large among a few values": pa.array(["z" * 2000 if n % 20 == 3 else "x" for n in range(4_000)]),
    "large and small": pa.array(["y" * (n % 997) * 3 for n in range(4_000)]),
    "no rows": pa.array([], pa.string()),
    "only nulls": pa.nulls(100, pa.string()),
}
WRITTEN = {
    "pages of version 2": {"data_page_version": "2.0", "data_page_size": 20_000},
    "small pages": {"data_page_size": 2_000},
    "small dictionary": {"dictionary_pagesize_limit": 3_000},
    "snappy": {"compression": "snappy"},
    "no dictionary": {"use_dictionary": False},
    "delta": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    "delta length": {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN.keys())
@pytest.mark.parametrize("column", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("typed", [False, True], ids=["", "typed"])
def test_every_way_to_write_rows_reads_as_what_they_are(column: pa.Array, options: dict, typed: bool) -> None:
    if typed:
        column = column.dictionary_encode()
        if "column_encoding" in options:
            pytest.skip("pyarrow writes columns of dictionaries in its own way")
    content = parquet(column, row_group_size=3_000, **options)
    expected = [naive(value) for value in column.to_pylist()]
    read_options = ReadOptions(SourceFormat.PARQUET, "text", None, 1500)
    kind = FileKind(SourceFormat.PARQUET, Compression.NONE)
    found: dict[int, str | None] = {}
    source = FileSlice(0, "f", len(content), "", kind=kind)
    for batch in read_documents(source, read_options, lambda _: io.BytesIO(content)):
        found.update(zip(batch.positions.tolist(), batch.texts, strict=True))
        found.update((item.position, None) for item in batch.rejected)
        assert all(item.record == item.position for item in batch.rejected)
        assert batch.source_bytes <= 4 * MIB
    assert [found[row] for row in range(len(expected))] == expected
    rules = SourceRules(SourceFormat.PARQUET, "text", None, 1500)
    assert [record.text for record in read_records(io.BytesIO(content), "f", rules)] == expected


def naive(value: str | bytes | None) -> str | None:
    raw = value.encode() if isinstance(value, str) else value
    try:
        return None if raw is None or len(raw) > 1500 else raw.decode()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN.keys())
@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20], ids=str)
def test_all_pages_are_seen_however_the_bytes_come(options: dict, size: int) -> None:
    content = parquet(ODD["mostly plain"].slice(0, 3000), **options)
    file = pq.ParquetFile(io.BytesIO(content))
    chunk = TextColumn(file, SizedFile(io.BytesIO(), 0), find_text_column(file.schema_arrow, "text")).chunk(0)
    walk = PageWalk(chunk, keeps_dictionary=False)
    for at in range(chunk.start, chunk.end, size):
        walk.feed(at, content[at : min(at + size, chunk.end)])
    assert walk._known
    assert [page.first for page in walk._pages] == [0, *[page.end for page in walk._pages]][:-1]
    assert walk._pages[-1].end == 3000


@pytest.mark.parametrize(
    "noise", [b"\x00", b"\xff" * 50, b"\x15" * 50, b"\x1c" * 200, b"\x18\xff\xff\xff\x7f"], ids=repr
)
def test_headers_that_make_no_sense_leave_one_row_at_a_time(noise: bytes) -> None:
    walk = PageWalk(Chunk(0, 1 << 30, 0, ()), keeps_dictionary=False)
    walk.feed(0, noise)
    walk.feed(len(noise), bytes(100))
    assert walk.rows_at_once(0) == 1


@pytest.mark.parametrize("error", [pa.ArrowCapacityError, pa.ArrowMemoryError, MemoryError])
def test_more_than_there_is_room_for_is_no_damage(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(pa.array(TEXTS))

    def fail(*_: object, **__: object) -> object:
        raise error("List array cannot contain more than 2147483646 elements")

    monkeypatch.setattr(text_column, "_decode", fail)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    options = ReadOptions(SourceFormat.PARQUET, "text", None, 100)
    source = FileSlice(0, "f", len(content), "", kind=FileKind(SourceFormat.PARQUET, Compression.NONE))
    with pytest.raises(MemoryError):
        list(read_documents(source, options, lambda _: io.BytesIO(content)))
    with pytest.raises(MemoryError):
        list(read_records(io.BytesIO(content), "f", SourceRules(SourceFormat.PARQUET, "text", None, 100)))


def test_a_damaged_dictionary_is_damage() -> None:
    content = repeated(900_000, 10)
    at = content.index(b"\x28\xb5\x2f\xfd")
    with pytest.raises(CorruptFileError) as raised:
        options = ReadOptions(SourceFormat.PARQUET, "text", None, MIB)
        broken = content[: at + 6] + b"\xff\xff" + content[at + 8 :]
        source = FileSlice(0, "f", len(broken), "", kind=FileKind(SourceFormat.PARQUET, Compression.NONE))
        list(read_documents(source, options, lambda _: io.BytesIO(broken)))
    assert raised.value.outcome is FileOutcome.CORRUPT_FILE


@pytest.mark.parametrize(("size", "rows_at_once"), [(900_000, 74), (8 * MIB, 8), (65 * MIB, 1)], ids=str)
def test_pointers_count_as_what_they_may_point_to(size: int, rows_at_once: int) -> None:
    pages = page_header(2, size, 0) + page_header(0, 400, 100_000)
    walk = PageWalk(Chunk(0, 1 << 30, 0, ()), keeps_dictionary=False)
    walk.feed(0, pages)
    assert walk.rows_at_once(0) == rows_at_once
    kept = PageWalk(Chunk(0, 1 << 30, 0, ()), keeps_dictionary=True)
    kept.feed(0, pages)
    assert kept.rows_at_once(0, 1000) == 1000


def page_header(kind: int, decoded_bytes: int, rows: int) -> bytes:
    """A page header in Thrift's compact protocol, of a page without bytes: dictionary (2) or pointers (0)."""

    def field(delta: int, value: int) -> bytes:
        number = value << 1
        digits = []
        while number > 127:
            digits.append(number & 127 | 128)
            number >>= 7
        return bytes([delta << 4 | 5, *digits, number])

    inner = field(1, rows) + field(1, 8 if kind == 0 else 0) + b"\x00"
    place = 2 if kind == 0 else 4
    return field(1, kind) + field(1, decoded_bytes) + field(1, 0) + bytes([place << 4 | 12]) + inner + b"\x00"


@pytest.mark.parametrize("keeps_dictionary", [False, True], ids=["", "pointers"])
def test_where_no_page_is_known_one_row_is_asked_for(keeps_dictionary: bool) -> None:
    walk = PageWalk(Chunk(0, 1 << 30, 0, ()), keeps_dictionary=keeps_dictionary)
    assert walk.rows_at_once(0) == 1
    walk.feed(0, page_header(2, 100, 0) + page_header(0, 400, 300))
    assert walk.rows_at_once(0) == 300
    assert walk.rows_at_once(300) == 1


def test_verify_does_not_believe_a_lying_footer() -> None:
    honest = repeated(8 * MIB, 300)
    small = parquet(ODD["a few values"])
    for content, rows in ((honest, 1024), (lying(honest), 1024), (lying(after_small_ones()), 1), (small, 16)):
        file = pq.ParquetFile(io.BytesIO(content))
        assert verify_parquet._way_of(io.BytesIO(content), file, 0, "text").rows == rows


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN.keys())
def test_verify_adds_up_the_pages_of_a_chunk(options: dict) -> None:
    content = parquet(ODD["mostly plain"], **options)
    column = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    stored = content[first : first + column.total_compressed_size]
    size = decoded_bytes(stored)
    assert size is not None and 0.9 * column.total_uncompressed_size < size <= column.total_uncompressed_size
    assert decoded_bytes(stored[:-1]) is None
    assert decoded_bytes(stored + b"\xff" * 20) is None


def test_verify_makes_nothing_of_headers_whose_fields_have_other_types() -> None:
    struct_for_size, size_for_dictionary = b"\x2c\x00\x15\x00\x00", b"\x75\x02\x00"
    assert decoded_bytes(struct_for_size) is None
    assert dictionary_values(size_for_dictionary) == 0


@pytest.mark.parametrize(("rows", "others", "is_kept"), [(500_000, 700_000, True), (300_000, 700_000, False)], ids=str)
def test_rows_that_take_no_more_than_pointers_do_are_kept_as_pointers(rows: int, others: int, is_kept: bool) -> None:
    """Decoded one by one they came in batches of 190 rows: each might have been the whole dictionary."""
    chunk = Chunk(0, 30_000 + others, 30_000, ("RLE_DICTIONARY",), rows)
    assert chunk.is_mostly_dictionary is is_kept
