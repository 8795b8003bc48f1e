"""Segments are scratch: what is read back is what was written, and what cannot be read is tokenized again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.corpus import BAD_LINES, Corpus, CorpusWriter, take_documents
from support.engine.inline import inline
from support.runs import command, difference, leftovers, make_job, read_index, run_command
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.events import Event, Progress
from tokenization_worker.formats.segment import MAGIC, SegmentLost, SegmentReader, SegmentWriter
from tokenization_worker.output.create_only import Disagreement
from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.pipelines.tokenize.ranges import block_writer, range_tokenizer
from tokenization_worker.pipelines.tokenize.ranges.encode import EncodedDocuments, Encoder
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.readers.batches import MAX_TEXTS
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore

pytestmark = pytest.mark.slow

U16, U32 = np.dtype("<u2"), np.dtype("<u4")
DIGEST = "0123456789abcdef" * 2
Written = list[tuple[int, list[int], bool]]
"""(stream, tokens of each document, whether the block is dropped afterwards), a row a block."""


def write_segment(
    store: LocalStore, path: str, blocks: Written, dtype: np.dtype[np.unsignedinteger], digest: str = DIGEST
) -> str:
    """A segment whose n-th token is n, counted over all blocks; returns its digest."""
    with store.upload(path, durable=False) as upload:
        writer = SegmentWriter(upload, n_streams=3)
        number = 0
        for stream, lengths, is_dropped in blocks:
            mark = writer.mark()
            writer.append(
                stream,
                np.arange(number, number + sum(lengths)).astype(dtype),
                np.array(lengths, dtype=np.uint32),
                np.arange(len(lengths), dtype=np.int64) + number,
                np.full(len(lengths), stream, dtype=np.uint32),
            )
            number += sum(lengths)
            if is_dropped:
                writer.drop_from(mark)
        size = writer.finish(digest)
        assert upload.commit().size == size
    store.close_scratch()
    return digest


def read_tokens(
    store: LocalStore, path: str, digest: str, dtype: np.dtype[np.unsignedinteger], stream: int, start: int, end: int
) -> list[int]:
    """Tokens [start, end) of a stream as a build reads them."""
    tokens: list[int] = []
    for block in SegmentReader(store, path, range_id=7, digest=digest, dtype=dtype).blocks(stream, start, end):
        assert block.lengths.sum() == len(block.tokens)
        assert len(block.lengths) == len(block.positions) == len(block.slices)
        assert set(block.slices) <= {stream}
        tokens += block.tokens[max(0, start - block.token_start) : end - block.token_start].tolist()
    return tokens


BLOCKS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 5), max_size=4), st.sampled_from([False, False, True])),
    max_size=8,
)


@given(BLOCKS, st.sampled_from([U16, U32]), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=60)
def test_a_segment_gives_back_the_tokens_of_each_stream(
    tmp_path_factory: pytest.TempPathFactory, blocks: Written, dtype: np.dtype[np.unsignedinteger], a: int, b: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("store"))
    digest = write_segment(store, "segment", blocks, dtype)
    for stream in range(3):
        expected: list[int] = []
        number = 0
        for block_stream, lengths, is_dropped in blocks:
            if block_stream == stream and not is_dropped:
                expected += range(number, number + sum(lengths))
            number += sum(lengths)
        assert read_tokens(store, "segment", digest, dtype, stream, 0, len(expected)) == expected
        start, end = min(a, b), max(a, b)
        assert read_tokens(store, "segment", digest, dtype, stream, start, end) == expected[start:end]


def test_a_footer_of_many_blocks_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = write_segment(store, "segment", [(0, [3], False)] * 5_000, U16)
    assert read_tokens(store, "segment", digest, U16, 0, 14_000, 15_000) == list(range(14_000, 15_000))


SMALL: Written = [(0, [3, 0, 2], False), (1, [4], False), (0, [1, 1], False)]


def read_everything(store: LocalStore, digest: str) -> dict[int, list[int]]:
    return {stream: read_tokens(store, "segment", digest, U16, stream, 0, 100) for stream in range(3)}


def test_a_segment_cut_anywhere_is_lost(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = write_segment(store, "segment", SMALL, U16)
    whole = (tmp_path / "segment").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "segment").write_bytes(whole[:size])
        with pytest.raises(SegmentLost):
            read_everything(store, digest)


@pytest.mark.parametrize("flip", [0x01, 0x40, 0x80, 0xFF])
def test_a_segment_with_a_changed_byte_is_lost(flip: int, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = write_segment(store, "segment", SMALL, U16)
    whole = (tmp_path / "segment").read_bytes()
    for place in range(len(whole)):
        (tmp_path / "segment").write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        with pytest.raises(SegmentLost):
            read_everything(store, digest)


TORN: dict[str, Callable[[bytes], bytes]] = {
    "zeros of the same size": lambda whole: bytes(len(whole)),
    "zeros to the footer": lambda whole: bytes(100) + whole[100:],
    "nothing": lambda whole: b"",
    "only the magic": lambda whole: MAGIC,
    "something after the end": lambda whole: whole + b"\0" * 8,
    "no blocks, a right end": lambda whole: bytes(8) + MAGIC,
    "more blocks than bytes": lambda whole: whole[:-16] + (2**60).to_bytes(8, "little") + MAGIC,
    "one block more than bytes": lambda whole: whole[:-16] + (len(whole) // 32).to_bytes(8, "little") + MAGIC,
}


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_segment_is_lost(torn: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = write_segment(store, "segment", SMALL, U16)
    whole = (tmp_path / "segment").read_bytes()
    (tmp_path / "segment").write_bytes(TORN[torn](whole))
    with pytest.raises(SegmentLost) as caught:
        read_everything(store, digest)
    assert caught.value.range_id == 7


def test_a_missing_segment_and_another_ranges_segment_are_lost(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = write_segment(store, "segment", SMALL, U16)
    write_segment(store, "other", SMALL, U16, digest=DIGEST[::-1])
    (tmp_path / "other").rename(tmp_path / "segment")
    with pytest.raises(SegmentLost, match="it does not match its receipt"):
        read_everything(store, digest)
    (tmp_path / "segment").unlink()
    with pytest.raises(SegmentLost, match="does not exist"):
        read_everything(store, digest)


# --- in a run ---------------------------------------------------------------------------------------------------


class Interrupted:
    """A run of one large file, stopped when about half of its ranges are done: nothing is built before its end."""

    def __init__(self, corpus: Corpus, output: Path) -> None:
        self.corpus = corpus
        self.output = output
        self.ledger = output / "_tokenization" / "ledger" / "0"
        self._done = 0
        with pytest.raises(Stopped):
            run_job(
                self.job(),
                options=Options(processes=1, engine="reference"),
                on_progress=self._count,
                should_stop=lambda: self._done >= 10,
            )
        self.ranges = sorted(int(path.stem) for path in (self.ledger / "ranges").iterdir())
        assert len(self.ranges) >= 10
        assert {f"{r:08d}" for r in self.ranges} == {path.name for path in (self.ledger / "segments").iterdir()}

    def job(self) -> TokenizationJob:
        return make_job(self.corpus.folder, self.output, output={"shards": {"tokens": 30_000}}, rangeBytes="64Ki")

    def _count(self, event: Event) -> None:
        self._done = event.ranges_done if isinstance(event, Progress) else 0

    def segment(self, range_id: int) -> Path:
        return self.ledger / "segments" / f"{range_id:08d}"

    def receipt(self, range_id: int) -> Path:
        return self.ledger / "ranges" / f"{range_id:08d}.json"

    def finish(self) -> Counter[int]:
        """Run to the end; how often each range was tokenized."""
        events: list[Event] = []
        run_job(self.job(), options=Options(processes=2), on_progress=events.append)
        return Counter(
            event.receipt.range_id
            for event in events
            if isinstance(event, Progress) and isinstance(event.receipt, RangeReceipt)
        )


@pytest.fixture(scope="module")
def expected(large_file: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("expected") / "out"
    job = make_job(large_file.folder, output, output={"shards": {"tokens": 30_000}})
    run_job(job, options=Options(engine="reference"), executor=inline())
    return output


@pytest.fixture
def interrupted(large_file: Corpus, tmp_path: Path) -> Interrupted:
    return Interrupted(large_file, tmp_path / "out")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGE: dict[str, Callable[[Path], None]] = {"deleted": Path.unlink, "cut": cut, "flipped": flip, "zeroed": empty}


@pytest.mark.parametrize("damage", DAMAGE)
def test_only_ranges_whose_segment_was_damaged_between_two_starts_are_tokenized_again(
    damage: str, interrupted: Interrupted, expected: Path
) -> None:
    victims = [interrupted.ranges[0], interrupted.ranges[4], interrupted.ranges[5]]
    for victim in victims:
        DAMAGE[damage](interrupted.segment(victim))
    tokenized = interrupted.finish()
    assert {r for r in tokenized if r in interrupted.ranges} == set(victims)
    assert set(tokenized.values()) == {1}
    assert difference(interrupted.output, expected) is None
    assert read_index(interrupted.output)["digest"] == read_index(expected)["digest"]
    assert leftovers(interrupted.output) == []


def change_segment_digest(receipt: dict[str, Any]) -> None:
    receipt["segment_digest"] = "0" * 32


def change_digests(receipt: dict[str, Any]) -> None:
    """As if other tokens had been written."""
    receipt["slices"][0]["digest"] = "0" * 32
    change_segment_digest(receipt)


def mutilate(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    receipt = load_record(path.read_bytes())
    change(receipt)
    path.write_bytes(dump_record(receipt))


def test_a_range_that_comes_out_otherwise_than_its_receipt_says_stops_the_run(interrupted: Interrupted) -> None:
    victim = interrupted.ranges[3]
    mutilate(interrupted.receipt(victim), change_digests)
    with pytest.raises(Disagreement) as caught:
        interrupted.finish()
    assert caught.value.reason == "NotDeterministic"
    assert f"ranges/{victim:08d}.json" in caught.value.message
    assert not (interrupted.output / "index.json").exists()

    done = run_command(command(interrupted.job(), interrupted.output.parent))
    assert done.returncode == 1
    assert "NotDeterministic" in done.stderr
    assert "report" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_segment_that_never_fits_its_receipt_ends_the_run_instead_of_looping(interrupted: Interrupted) -> None:
    mutilate(interrupted.receipt(interrupted.ranges[3]), change_segment_digest)
    with pytest.raises(TemporaryError) as caught:
        interrupted.finish()
    assert caught.value.reason == "SegmentLost"


def test_a_damaged_file_is_described_alike_by_whoever_found_its_verdict(tmp_path: Path) -> None:
    """A start that finds a verdict, and no receipt, drops the file in the words of the one that read it."""
    writer = CorpusWriter(tmp_path / "source")
    writer.jsonl(take_documents(100_000))
    writer.truncated_zstd(take_documents(200_000))
    writer.unusable_lines(take_documents(50_000), BAD_LINES)
    corpus = writer.finish()

    def job(output: Path, allowed: int) -> TokenizationJob:
        return make_job(corpus.folder, output, rangeBytes="64Ki", maxQuarantined="100%", maxCorruptFiles=allowed)

    run_job(job(tmp_path / "expected", 1))
    with pytest.raises(DataError) as first:
        run_job(job(tmp_path / "out", 0))
    for folder in ("ranges", "segments"):
        for path in (tmp_path / "out" / "_tokenization" / "ledger" / "0" / folder).iterdir():
            path.unlink()
    with pytest.raises(DataError) as second:
        run_job(job(tmp_path / "out", 0))
    assert first.value.message == second.value.message
    run_job(job(tmp_path / "out", 1))
    table = "_tokenization/files.jsonl.zst"
    assert (tmp_path / "out" / table).read_bytes() == (tmp_path / "expected" / table).read_bytes()
    assert difference(tmp_path / "out", tmp_path / "expected") is None


@pytest.mark.parametrize("block_bytes", [1 << 20, 5_000], ids=["same-blocks", "other-blocks"])
def test_a_range_with_a_dropped_file_in_its_middle_can_be_done_again(
    block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time its small files stand in blocks of their own, the second time together, or cut otherwise."""
    writer = CorpusWriter(tmp_path / "source")
    writer.jsonl(take_documents(20_000), pack="zstd")
    writer.truncated_zstd(take_documents(3_000_000))
    writer.jsonl(take_documents(20_000, first=50), pack="zstd")
    corpus = writer.finish()

    def run(token: str) -> None:
        fields = {"rerunToken": token, "maxCorruptFiles": 1, "output": {"shards": {"tokens": 1_000}}}
        run_job(make_job(corpus.folder, tmp_path / "out", {"tokenizer": {"name": "bytes"}}, fields), executor=inline())

    run("1")
    index = read_index(tmp_path / "out")
    assert index["conservation"]["files"]["Read"] == 2
    shards = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.npy")}
    for path in shards:
        path.unlink()
    monkeypatch.setattr(range_tokenizer, "BLOCK_BYTES", block_bytes)
    run("2")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.npy")} == shards


def write_parquet(folder: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([""] * 300_000)}), folder / "a.parquet")


def write_text(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"<>" * 300_000)


@pytest.mark.parametrize(
    ("write", "source"),
    [(write_parquet, {}), (write_text, {"format": "Text", "documentSeparator": "<>"})],
    ids=["rows", "pieces"],
)
def test_documents_without_bytes_are_not_encoded_all_at_once(
    write: Callable[[Path], None], source: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    write(tmp_path / "source")
    counts: list[int] = []

    class Counting(Encoder):
        def encode(self, texts: Sequence[str], *places: Any) -> EncodedDocuments:
            counts.append(len(texts))
            return super().encode(texts, *places)

    monkeypatch.setattr(block_writer, "Encoder", Counting)
    fields = {"tokenizer": {"name": "bytes"}, "source": source}
    run_job(make_job(tmp_path / "source", tmp_path / "out", fields), executor=inline())
    assert (sum(counts), max(counts) <= 2 * MAX_TEXTS) == (300_000, True)


def test_a_segment_that_many_builds_find_torn_is_lost_once(tmp_path: Path) -> None:
    writer = CorpusWriter(tmp_path / "source")
    writer.jsonl(take_documents(20_000))
    corpus = writer.finish()
    torn: list[Path] = []

    def tear(task: Task) -> None:
        segment = tmp_path / "out" / "_tokenization" / "ledger" / "0" / "segments" / "00000000"
        if isinstance(task, BuildTask) and not torn:
            torn.append(segment)
            empty(segment)

    fields = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 1_000}}}
    done = run_job(make_job(corpus.folder, tmp_path / "out", fields), executor=inline(tear, slots=8))
    assert torn
    assert done.shards > 8
    fresh = run_job(make_job(corpus.folder, tmp_path / "fresh", fields), executor=inline())
    assert fresh.shards == done.shards
    assert difference(tmp_path / "out", tmp_path / "fresh") is None
