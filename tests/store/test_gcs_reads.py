"""Reading from a bucket: what is under way, what is not read, what is checked, and what happens when nothing comes."""

from __future__ import annotations

import gzip
import json
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from io import BytesIO
from itertools import pairwise, starmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.stores.gcs_fake import FakeGcs, Fault
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.formats.base import ShardShape, StoredFile
from tokenization_worker.formats.npy import NPY
from tokenization_worker.readers.document_batch import Compression, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.head import read_head
from tokenization_worker.readers.open import read_documents
from tokenization_worker.sequences.parts import NO_PARTS
from tokenization_worker.storage.base import ByteReader, NotFound, Store, expect_ranges
from tokenization_worker.storage.gcs import download
from tokenization_worker.storage.gcs.client import RETRY, gcs_client
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import AHEAD_BYTES, REQUESTS_AHEAD, GcsStore, begin_more
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.prefetch import (
    BLOCK_BYTES,
    BLOCKS_AHEAD,
    FIRST_BYTES,
    Range,
    RangesAhead,
    join_ranges,
    split_ranges,
)

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DEADLINE_S = 120
WINDOW = BLOCK_BYTES * BLOCKS_AHEAD
DATA = random.Random(5).randbytes(WINDOW + 2 * BLOCK_BYTES + 5)
QUICK = RETRY.with_delay(initial=0.001, maximum=0.01)
OPTIONS = ReadOptions(SourceFormat.AUTO, "text", None, 1 << 20)
JSONL = FileKind(SourceFormat.JSONL, Compression.NONE)


def open_gcs(uri: str = "gs://bucket/a", **how: float) -> ByteReader:
    return GcsSource(retry=QUICK, **how).open(uri)[1]


def read_all(stream: ByteReader, piece: int = 512 << 10) -> bytes:
    return b"".join(iter(lambda: stream.read(piece), b""))


def read_texts(fake: FakeGcs, start: int = 0, end: int = -1, kind: FileKind | None = None) -> list[str]:
    """The documents of object `a`, as a task reads them."""
    source = FileSlice(0, "gs://bucket/a", len(fake.objects["a"].data), "", start, end, kind)
    return [text for batch in read_documents(source, OPTIONS, open_gcs) for text in batch.texts]


def write_jsonl(n_docs: int, text_bytes: int) -> bytes:
    letters = random.Random(3)
    return b"".join(b'{"text": "%s"}\n' % letters.randbytes(text_bytes // 2).hex().encode() for _ in range(n_docs))


def write_parquet(row_groups: int, rows: int, text_bytes: int, other_bytes: int) -> bytes:
    letters = random.Random(4)
    columns = {
        name: [letters.randbytes(size // 2).hex() for _ in range(row_groups * rows)]
        for name, size in (("before", other_bytes), ("text", text_bytes), ("after", other_bytes))
    }
    file = BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=rows, compression="none", use_dictionary=False)
    return file.getvalue()


def let_wait(fake: FakeGcs, count: int) -> None:
    """Answer none of the next so many downloads before all of them are there."""
    together = threading.Barrier(count)
    waiting = iter(range(count))

    def hold(request: str) -> None:
        if "alt=media" in request and next(waiting, None) is not None:
            together.wait(DEADLINE_S)

    fake.hold = hold


def covered(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


# What is under way


def test_announced_blocks_are_all_under_way_before_the_first_is_there(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    let_wait(fake, BLOCKS_AHEAD)
    with closing(open_gcs()) as stream:
        expect_ranges(stream, [(0, len(DATA))])
        assert read_all(stream) == DATA


def test_whoever_reads_on_without_a_word_has_the_next_blocks_under_way(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        assert stream.read(FIRST_BYTES) == DATA[:FIRST_BYTES]
        let_wait(fake, BLOCKS_AHEAD)
        assert stream.read(1) == DATA[FIRST_BYTES : FIRST_BYTES + 1]


@pytest.mark.parametrize("kind", [None, JSONL], ids=["found-out", "planned"])
def test_the_rest_of_a_file_is_under_way_while_its_first_lines_are_used(fake: FakeGcs, kind: FileKind | None) -> None:
    fake.put("a", write_jsonl(1000, 10_000))
    second = threading.Event()

    def hold(request: str) -> None:
        if "alt=media" in request and fake.ranges:
            second.set()

    fake.hold = hold
    source = FileSlice(0, "gs://bucket/a", len(fake.objects["a"].data), "", kind=kind)
    batches = read_documents(source, OPTIONS, open_gcs)
    n_docs = len(next(batches).texts)
    assert second.wait(DEADLINE_S)
    assert n_docs + sum(len(batch.texts) for batch in batches) == 1000


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "guessed"])
def test_every_byte_is_asked_for_once_and_none_beyond_the_end(fake: FakeGcs, announced: bool) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        if announced:
            expect_ranges(stream, [(0, len(DATA) + 1000)])
        assert read_all(stream, 100_000) == DATA
        assert stream.read(1) == b""
    assert sorted(fake.ranges)[0][0] == 0
    assert covered(fake.ranges) == len(DATA) == max(end for _, end in fake.ranges)


def test_no_more_than_the_window_is_ever_under_way(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        expect_ranges(stream, [(0, len(DATA))])
        for read_bytes in range(0, len(DATA), BLOCK_BYTES):
            assert stream.read(1)
            stream.seek(BLOCK_BYTES - 1, 1)
            assert covered(fake.ranges) <= read_bytes + BLOCK_BYTES + WINDOW


def test_a_seek_finds_the_right_bytes_wherever_it_goes(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    places = random.Random(9)
    with closing(open_gcs()) as stream:
        for number in range(60):
            if number % 15 == 7:
                expect_ranges(stream, [(1000, 5_000_000), (6_000_000, 7_000_000), (7_100_000, 30_000_000)])
            if number % 3:
                stream.seek(places.choice([places.randrange(len(DATA)), stream.tell() + 70_000, 0]))
            at, size = stream.tell(), places.choice([1, 1000, 600_000, 6_000_000])
            piece = stream.read(size)
            assert piece == DATA[at : at + len(piece)]
            assert piece or at >= len(DATA)


def test_ranges_join_over_small_gaps_and_split_into_blocks() -> None:
    ranges = [Range(0, 10), Range(10, 20), Range(23, 30), Range(40, 45), Range(5, 7)]
    assert list(join_ranges(ranges, 100, 3)) == [(0, 30), (40, 45), (5, 7)]
    assert list(join_ranges(ranges, 20)) == [(0, 20), (23, 30), (40, 45), (5, 7)]
    assert list(join_ranges([], 20)) == []
    assert list(split_ranges([Range(0, 30), Range(40, 45)], 20)) == [(0, 20), (20, 30), (40, 45)]


# What is not read


def test_a_slice_costs_little_more_than_its_bytes(fake: FakeGcs) -> None:
    data = write_jsonl(1200, 20_000)
    fake.put("a", data)
    cuts = [0, 9_000_000, 18_000_000, len(data)]
    texts = []
    for start, end in pairwise(cuts):
        fake.ranges.clear()
        texts += read_texts(fake, start, end, JSONL)
        assert covered(fake.ranges) <= end - start + FIRST_BYTES + 1
    assert texts == [json.loads(line)["text"] for line in data.splitlines()]


def test_the_text_column_costs_little_more_than_its_bytes(fake: FakeGcs) -> None:
    data = write_parquet(row_groups=3, rows=100, text_bytes=30_000, other_bytes=20_000)
    fake.put("a", data)
    texts = read_texts(fake)
    assert texts == pq.read_table(BytesIO(data), columns=["text"])["text"].to_pylist()
    assert covered(fake.ranges) <= sum(map(len, texts)) + 2 * FIRST_BYTES  # the file's head, and its footer


def test_small_row_groups_are_read_together(fake: FakeGcs) -> None:
    data = write_parquet(row_groups=40, rows=10, text_bytes=20_000, other_bytes=100)
    fake.put("a", data)
    assert len(read_texts(fake)) == 400
    assert len(fake.ranges) <= 2 + len(data) // BLOCK_BYTES + 2


def test_a_footer_that_points_anywhere_misleads_nobody(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        expect_ranges(stream, [(-50, -3), (len(DATA) - 5, 1 << 60), (9, 3), (2, 7), (1 << 60, 1 << 61)])
        assert stream.read(10) == DATA[:10]
        stream.seek(-5, 2)
        assert stream.read(10) == DATA[-5:]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_plan_reads_only_the_head_of_a_file(fake: FakeGcs, pack: Callable[[bytes], bytes]) -> None:
    data = pack(write_jsonl(150, 20_000))
    fake.put("a", data)
    assert read_head("gs://bucket/a", len(data), OPTIONS, 32 << 10, open_gcs).texts
    assert fake.ranges == [(0, FIRST_BYTES)]


def test_a_closed_stream_asks_for_nothing_more(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    let_wait(fake, BLOCKS_AHEAD + 1)
    stream = open_gcs()
    expect_ranges(stream, [(0, len(DATA))])
    stream.close()
    with closing(open_gcs()) as other:
        assert other.read(1) == DATA[:1]  # and lets the others go
    for thread in threading.enumerate():
        if thread.name == "ahead":
            assert thread.daemon
            thread.join(DEADLINE_S)
    assert len(fake.ranges) == BLOCKS_AHEAD + 1


# What goes wrong


def test_an_error_is_raised_by_the_read_that_needs_the_bytes(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        assert stream.read(FIRST_BYTES) == DATA[:FIRST_BYTES]
        fake.put("a", DATA[::-1])
        expect_ranges(stream, [(FIRST_BYTES, len(DATA))])
        stream.seek(0)
        assert stream.read(FIRST_BYTES) == DATA[:FIRST_BYTES]
        with pytest.raises(ChangedError, match="replaced or deleted while it was read") as raised:
            stream.read(1)
    assert raised.value.reason == "SourceChanged"


def test_a_block_that_fails_is_asked_for_again(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    with closing(open_gcs()) as stream:
        fake.faults += [Fault("GET", "alt=media", 503), Fault("GET", "alt=media", 0), Fault("GET", "alt=media", 429)]
        expect_ranges(stream, [(0, len(DATA))])
        assert read_all(stream) == DATA
    assert not fake.faults


def flip(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def damage_answer(fake: FakeGcs, number: int) -> None:
    """Flip a bit in one download, of those to come."""
    seen: list[str] = []

    def send(request: str, body: bytes) -> Iterable[bytes]:
        if "alt=media" in request:
            seen.append(request)
            if len(seen) == number:
                return (flip(body),)
        return (body,)

    fake.send = send


@pytest.mark.parametrize("number", [1, 3, 7])
def test_a_bit_flipped_on_the_way_is_found_before_the_last_bytes_are_used(fake: FakeGcs, number: int) -> None:
    fake.put("a", DATA)
    damage_answer(fake, number)
    with closing(open_gcs()) as stream:
        expect_ranges(stream, [(0, len(DATA))])
        with pytest.raises(TemporaryError, match=r"gs://bucket/a: .*changed during the transfer") as raised:
            read_all(stream)
        assert stream.tell() < len(DATA)
    assert raised.value.reason == "StorageFailed"


def test_a_shard_with_a_flipped_bit_is_no_array_of_tokens(fake: FakeGcs) -> None:
    shape = ShardShape(1000, np.dtype("<u2"))
    content = BytesIO()
    NPY.begin(shape, [content]).write(np.arange(1000, dtype="<u2"), NO_PARTS)
    fake.put("a", content.getvalue())
    file = StoredFile(GcsStore("gs://bucket"), "a", len(content.getvalue()))
    assert NPY.reader(shape, [file]).open().tolist() == list(range(1000))
    damage_answer(fake, 2)  # the first one is that of the header
    with pytest.raises(TemporaryError, match="Checksum mismatch"):
        NPY.reader(shape, [file]).open()


def test_lines_of_a_file_with_a_flipped_bit_are_not_taken_for_its_own(fake: FakeGcs) -> None:
    fake.put("a", write_jsonl(100, 500))
    assert len(read_texts(fake)) == 100
    damage_answer(fake, 1)
    with pytest.raises(TemporaryError, match="changed during the transfer"):
        read_texts(fake)


def test_a_file_without_a_checksum_is_read(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = fake.properties
    fake.put("a", DATA)
    fake.gives_checksums = False
    monkeypatch.setattr(fake, "properties", lambda name: {k: v for k, v in properties(name).items() if k != "crc32c"})
    with closing(open_gcs()) as stream:
        assert read_all(stream) == DATA


def stall(fake: FakeGcs, times: int) -> threading.Event:
    """Send half of a body, of so many downloads, and then nothing before the event is set."""
    end = threading.Event()
    left = [None] * times

    def send(request: str, body: bytes) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        if "alt=media" in request and left:
            left.pop()
            end.wait(DEADLINE_S)
        yield body[len(body) // 2 :]

    fake.send = send
    return end


def test_a_body_that_stops_is_asked_for_again(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    end = stall(fake, 2)
    with closing(open_gcs(timeout_s=0.5)) as stream:
        expect_ranges(stream, [(0, len(DATA))])
        assert read_all(stream) == DATA
    assert not end.is_set()
    end.set()
    assert len(fake.ranges) >= -(-len(DATA) // BLOCK_BYTES) + 2


def test_a_body_that_never_ends_is_given_up(fake: FakeGcs) -> None:
    fake.put("a", DATA)
    end = stall(fake, 1000)
    with closing(open_gcs(patience_s=0.1)) as stream, pytest.raises(TemporaryError, match="did not finish") as raised:
        stream.read(1)
    end.set()
    assert raised.value.reason == "StorageFailed"
    assert f"gs://bucket/a: bytes [0, {FIRST_BYTES})" in raised.value.message


# Many ranges of our own objects


@pytest.fixture(params=["local", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalStore(tmp_path)
    request.getfixturevalue("fake")
    return GcsStore("gs://bucket/out", retry=QUICK)


def put(store: Store, data: bytes) -> None:
    with store.upload("a") as upload:
        upload.write(data)
        upload.commit()


RANGES: dict[str, Sequence[tuple[int, int]]] = {
    "none": [],
    "one": [(3, 70)],
    "neighbours": [(start, start + 1_000_000) for start in range(0, 20_000_000, 1_000_000)],
    "far-apart": [(start, start + 10) for start in range(7, 20_000_000, 500_000)],
    "large": [(0, AHEAD_BYTES + 5), (AHEAD_BYTES + 5, AHEAD_BYTES + 9), (AHEAD_BYTES + 9, AHEAD_BYTES + BLOCK_BYTES)],
    "over-the-end": [(10, 20), (len(DATA) - 3, len(DATA) + 5), (len(DATA) + 5, len(DATA) + 9)],
}


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES.keys())
def test_many_ranges_are_what_each_of_them_is(store: Store, ranges: Sequence[tuple[int, int]]) -> None:
    put(store, DATA)
    assert list(store.read_ranges("a", ranges)) == [DATA[start:end] for start, end in ranges]


def test_ranges_of_a_missing_object_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        list(store.read_ranges("none", [(0, 5), (5, 7)]))


def test_neighbours_come_in_few_requests(fake: FakeGcs) -> None:
    fake.put("out/a", DATA)
    assert b"".join(GcsStore("gs://bucket/out").read_ranges("a", RANGES["neighbours"])) == DATA[:20_000_000]
    assert len(fake.ranges) == 5


def test_ranges_far_apart_are_under_way_together(fake: FakeGcs) -> None:
    fake.put("out/a", DATA)
    let_wait(fake, REQUESTS_AHEAD)
    found = GcsStore("gs://bucket/out").read_ranges("a", RANGES["far-apart"][:REQUESTS_AHEAD])
    assert [len(data) for data in found] == [10] * REQUESTS_AHEAD


def test_large_ranges_are_not_under_way_together() -> None:
    end = threading.Event()
    ahead = RangesAhead(lambda start, stop: bytes(end.wait(DEADLINE_S)), "gs://bucket/a")
    half = AHEAD_BYTES // 2
    blocks = deque(starmap(Range, pairwise([0, half, 2 * half + 1, 9 * half, 10 * half])))
    for _ in range(4):
        begin_more(ahead, blocks)
        assert len(ahead) == 1
        ahead.drop()
    end.set()


def test_a_range_that_is_ignored_is_not_taken_for_it(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.put("a", b"x" * 100)
    monkeypatch.setattr(download, "_download", lambda blob, **how: b"x" * 100)  # what no server here would do
    blob = gcs_client().bucket("bucket").blob("a")
    with pytest.raises(TemporaryError, match=r"asked for bytes \[2, 5\), got 100 bytes"):
        download.download_range(blob, "gs://bucket/a", 2, 5, QUICK)
