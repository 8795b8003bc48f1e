"""The ledger of a store with a network in between: listed, not read; and never believed where the object is another."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stores.gcs_fake import FakeGcs, Stored
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Warned, ignore
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes, create_receipt, create_record
from tokenization_worker.output.ledger.quarantine import read_range_lists
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt, SliceResult, Span
from tokenization_worker.output.object_metadata import digest_metadata, digest_of, record_metadata, record_of
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.output.scratch import remove_scratch
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger, read_tokenize_ledger
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.run.discard import discard_corrupt_records
from tokenization_worker.storage.base import Entry, Store
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.listing import split_prefixes
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.source_file import SourceFile

RANGES = 30
SHARD_TOKENS = 1_000
RANGE_TOKENS = 700

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def make_plan(splits: list[dict[str, object]] | None = None) -> Plan:
    numbers = np.arange(RANGES)
    cut = Cut(numbers.astype(np.int32), 0 * numbers, 0 * numbers - 1, np.arange(RANGES + 1), 0 * numbers + 10)
    output = {
        "formats": ["Npy"],
        "dtype": "UInt16",
        "path": "{split}/{split}_{index:06d}",
        "shards": {"tokens": SHARD_TOKENS},
        "splits": splits or [{"name": "train", "shards": None, "share": None}],
    }
    data = {"output": output}
    files = tuple(SourceFile(f"/{number}", 10, "v") for number in range(RANGES))
    return Plan("plan", "data", "run", data, files, (None,) * RANGES, cut)


def range_receipt(range_id: int, detail: str = "", list_digest: str = "") -> RangeReceipt:
    digest = sha256(b"%d" % range_id).hexdigest()[:32]
    part = SliceResult(range_id, "Read", detail, (RANGE_TOKENS,), (7,), 8, {"InvalidJson": 1}, digest)
    return RangeReceipt("plan", 0, range_id, (part,), digest, 99, list_digest, 1, 2, 10, 0, "reference", "node", 1, 0.5)


def shard_receipt(store: Store, split: str, index: int, before: int = 0) -> ShardReceipt:
    """Of a shard that is written now, with its sidecar; `before`: shards of earlier splits."""
    path = f"{split}/{split}_{index:06d}.npy"
    shard, sidecar = f"shard {path}".encode(), f"sidecar {path}".encode()
    create_bytes(store, path, shard)
    create_bytes(store, layout.documents_path(split, index), sidecar, digest_metadata(sidecar))
    entry = store.stat(path)
    assert entry is not None
    crc, digests = google_crc32c.value(shard), (sha256(shard).hexdigest(), sha256(sidecar).hexdigest())
    piece = Span(index, 0, 0, RANGE_TOKENS)
    return ShardReceipt(
        "plan",
        0,
        split,
        index,
        before + index,
        path,
        700,
        7,
        len(shard),
        crc,
        *digests,
        entry.version,
        (piece,),
        "n",
        1,
        0.5,
    )


def write_ledger(store: Store, splits: dict[str, int]) -> TokenizeLedger:
    """One of all ranges; every third has a list, every fifth its segment, and one file a verdict."""
    written = TokenizeLedger()
    lost: list[int] = []
    segments: list[int] = []
    for number in range(RANGES):
        digest = sha256(b"list %d" % number).hexdigest()[:32] if number % 3 == 0 else ""
        receipt = create_receipt(store, layout.range_receipt_path(0, number), range_receipt(number, list_digest=digest))
        written.add_range(receipt)
        if digest and number:
            create_bytes(store, layout.quarantine_path(0, number, digest), b"{}\n")
        elif digest:
            lost.append(number)
        if number % 5 == 0:
            create_bytes(store, layout.segment_path(0, number), b"segment")
            segments.append(number)
    written.set_lost_lists(lost)
    written.set_segments(segments)
    before = 0
    for split, count in splits.items():
        for index in range(count):
            receipt = shard_receipt(store, split, index, before)
            path = layout.shard_receipt_path(0, split, index)
            written.add_shard(create_receipt(store, path, receipt))
        before += count
    verdict = {"file": 3, "uri": "/3", "outcome": "CorruptFile", "offset": 1, "detail": "torn"}
    create_record(store, layout.verdict_path(3), verdict)
    written.add_verdict(3, "CorruptFile", "torn")
    return written


@pytest.fixture
def store(fake: FakeGcs) -> GcsStore:
    return GcsStore("gs://bucket/out")


def downloads(fake: FakeGcs) -> list[str]:
    """Requests for an object's bytes since the last time."""
    found = [request for request in fake.requests if "alt=media" in request]
    fake.requests.clear()
    return found


def test_a_ledger_in_a_bucket_is_listed_and_no_receipt_is_read(fake: FakeGcs, store: GcsStore) -> None:
    written = write_ledger(store, {"train": 5})
    fake.requests.clear()
    assert read_tokenize_ledger(store, make_plan(), 0) == written
    assert len(fake.requests) <= 8
    assert downloads(fake) == []


def test_records_without_metadata_are_read_and_mean_the_same(fake: FakeGcs, store: GcsStore) -> None:
    written = write_ledger(store, {"train": 5})
    for stored in fake.objects.values():
        stored.metadata.clear()
    assert read_tokenize_ledger(store, make_plan(), 0) == written
    assert len(downloads(fake)) == RANGES + 5 + 1


def test_a_receipt_too_large_for_metadata_is_read(fake: FakeGcs, store: GcsStore) -> None:
    noise = "".join(sha256(b"%d" % number).hexdigest() for number in range(400))
    receipt = range_receipt(7, detail=noise)
    create_receipt(store, layout.range_receipt_path(0, 7), receipt)
    assert "record" not in fake.objects[f"out/{layout.range_receipt_path(0, 7)}"].metadata
    assert read_tokenize_ledger(store, make_plan(), 0).ranges == {7: receipt}


def test_local_disks_and_buckets_give_the_same_ledger(store: GcsStore, tmp_path: Path) -> None:
    splits = [{"name": "test", "shards": 2, "share": None}, {"name": "train", "shards": None, "share": None}]
    local = LocalStore(tmp_path)
    written = write_ledger(local, {"test": 2, "train": 4})
    assert read_tokenize_ledger(local, make_plan(splits), 0) == written
    write_ledger(store, {"test": 2, "train": 4})
    remote = read_tokenize_ledger(store, make_plan(splits), 0)
    assert remote.ranges == written.ranges
    assert remote.shards.keys() == written.shards.keys()
    assert (remote.segments, remote.lost_lists, remote.verdicts) == (
        written.segments,
        written.lost_lists,
        written.verdicts,
    )


def test_a_record_that_was_written_over_is_judged_by_its_bytes(fake: FakeGcs, store: GcsStore) -> None:
    write_ledger(store, {})
    path = f"out/{layout.range_receipt_path(0, 4)}"
    was = fake.objects[path]
    torn = was.data.replace(b'"pid":1', b'"pid":2')
    assert len(torn) == len(was.data) and torn != was.data
    fake.objects[path] = Stored(torn, was.generation + 1, was.metadata, google_crc32c.value(torn))
    ledger = read_tokenize_ledger(store, make_plan(), 0)
    assert 4 not in ledger.ranges
    assert len(ledger.ranges) == RANGES - 1
    [damaged] = ledger.corrupt
    assert damaged.path == layout.range_receipt_path(0, 4)
    assert "checksum" in damaged.detail

    warnings: list[Event] = []
    discard_corrupt_records(store, ledger.corrupt, warnings.append)
    assert path not in fake.objects
    [warning] = warnings
    assert isinstance(warning, Warned)
    assert f"{store.uri}/{layout.range_receipt_path(0, 4)} is corrupt" in warning.message


def test_many_damaged_records_are_not_all_named_and_all_deleted(fake: FakeGcs, store: GcsStore) -> None:
    write_ledger(store, {})
    for number in range(RANGES):
        fake.put(f"out/{layout.range_receipt_path(0, number)}", b"torn")
    warnings: list[Event] = []
    discard_corrupt_records(store, read_tokenize_ledger(store, make_plan(), 0).corrupt, warnings.append)
    assert len(warnings) == 21
    assert warnings[-1] == Warned(
        f"this run deletes 10 more corrupt records below {store.uri}/_tokenization/ and writes them again"
    )
    assert not any("/ranges/" in path for path in fake.objects)


def test_a_damaged_record_that_was_made_again_meanwhile_stays(fake: FakeGcs, store: GcsStore) -> None:
    write_ledger(store, {})
    path = f"out/{layout.range_receipt_path(0, 4)}"
    was = fake.objects[path]
    torn = was.data.replace(b'"pid":1', b'"pid":2')
    fake.objects[path] = Stored(torn, was.generation + 1, was.metadata, google_crc32c.value(torn))
    ledger = read_tokenize_ledger(store, make_plan(), 0)
    fake.objects[path] = Stored(was.data, was.generation + 2, was.metadata, google_crc32c.value(was.data))
    discard_corrupt_records(store, ledger.corrupt, ignore)
    assert fake.objects[path].data == was.data


def test_a_record_that_is_deleted_while_it_is_read_is_none(
    fake: FakeGcs, store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent run may find it damaged, too."""
    write_ledger(store, {})
    for stored in fake.objects.values():
        stored.metadata.clear()
    gone = layout.range_receipt_path(0, 4)
    read = GcsStore.read

    def read_too_late(self: GcsStore, path: str) -> bytes:
        if path == gone:
            self.delete(path)
        return read(self, path)

    monkeypatch.setattr(GcsStore, "read", read_too_late)
    ledger = read_tokenize_ledger(store, make_plan(), 0)
    assert len(ledger.ranges) == RANGES - 1
    assert ledger.corrupt == []


def test_a_record_of_another_version_is_refused_and_not_deleted(store: GcsStore) -> None:
    """Its checksum is right: nothing has damaged it, this program does not know it."""
    create_record(store, layout.range_receipt_path(0, 4), {"plan_id": "plan", "of": "a later version"})
    with pytest.raises(DataError, match=r"RecordCorrupt: .*00000004.json has the right checksum, but this version"):
        read_tokenize_ledger(store, make_plan(), 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: replace(entry, crc32c=entry.crc32c ^ 1),
        lambda entry: replace(entry, crc32c=None),
        lambda entry: replace(entry, size=entry.size + 1),
        lambda entry: replace(entry, size=entry.size - 1),
        lambda entry: replace(entry, metadata={}),
        lambda entry: replace(entry, metadata={"record": "?"}),
        lambda entry: replace(entry, metadata={"record": "AAAA"}),
    ],
    ids=["other-bytes", "no-checksum", "longer", "shorter", "no-metadata", "no-base64", "no-zstd"],
)
def test_metadata_counts_only_where_the_checksum_is_of_what_it_says(change: object) -> None:
    data = b'{"a": 1}\n' * 20
    entry = Entry("a", len(data), "1", record_metadata(data) | digest_metadata(data), google_crc32c.value(data))
    assert record_of(entry) == data
    assert digest_of(entry) == sha256(data).hexdigest()
    assert callable(change)
    assert record_of(change(entry)) is None


def test_metadata_of_a_record_stays_below_what_a_store_takes() -> None:
    for size in range(0, 60_000, 997):
        noise = b"".join(sha256(b"%d" % number).digest() for number in range(size // 32 + 1))[:size]
        metadata = record_metadata(noise)
        assert sum(len(key) + len(value) for key, value in metadata.items()) <= 8 << 10
    assert record_metadata(b"0" * 50_000)
    assert not record_metadata(b"0" * 100_000)


# Shards and lists


def test_shards_in_a_bucket_are_checked_by_listings_alone(fake: FakeGcs, store: GcsStore) -> None:
    receipts = [shard_receipt(store, "train", index) for index in range(5)]
    fake.requests.clear()
    assert find_changed_shards(store, receipts) == []
    assert len(fake.requests) <= 4
    assert downloads(fake) == []


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_a_sidecar_that_was_written_over_is_found(fake: FakeGcs, store: GcsStore, keeps_metadata: bool) -> None:
    receipts = [shard_receipt(store, "train", index) for index in range(5)]
    path = f"out/{layout.documents_path('train', 3)}"
    was = fake.objects[path]
    fake.put(path, b"another", metadata=was.metadata if keeps_metadata else None)
    assert find_changed_shards(store, receipts) == [receipts[3]]


def test_sidecars_without_metadata_are_read(fake: FakeGcs, store: GcsStore) -> None:
    receipts = [shard_receipt(store, "train", index) for index in range(5)]
    for stored in fake.objects.values():
        stored.metadata.clear()
    assert find_changed_shards(store, receipts) == []
    assert len(downloads(fake)) == 5


def test_shards_and_sidecars_that_are_gone_are_found(store: GcsStore) -> None:
    receipts = [shard_receipt(store, "train", index) for index in range(5)]
    store.delete(receipts[1].path)
    store.delete(layout.documents_path("train", 4))
    assert find_changed_shards(store, receipts) == [receipts[1], receipts[4]]


def test_lists_come_in_the_order_of_ranges_with_two_calls_each(fake: FakeGcs, store: GcsStore) -> None:
    named = []
    for range_id in range(20):
        data = b'{"n":%d}\n{"n":-1}\n' % range_id
        named.append((range_id, sha256(data).hexdigest()[:32]))
        create_bytes(store, layout.quarantine_path(0, *named[-1]), zstd.compress(data))
    fake.requests.clear()
    rows = list(read_range_lists(store, 0, named))
    assert rows == [(range_id, {"n": n}) for range_id in range(20) for n in (range_id, -1)]
    assert len(fake.requests) == 2 * 20  # the list, and whether it ends where it came to an end


def test_segments_in_a_bucket_are_all_removed(store: GcsStore) -> None:
    write_ledger(store, {})
    create_record(store, layout.epoch_path(0), {"epoch": 0})
    remove_scratch(store)
    assert list(store.list(layout.segments_prefix(0))) == []


# Prefixes


@given(st.sets(st.text("ab01/", min_size=1, max_size=6), min_size=1, max_size=40), st.integers(1, 10))
def test_every_path_begins_with_exactly_one_prefix(paths: set[str], most: int) -> None:
    prefixes = split_prefixes(sorted(paths), most)
    for path in paths:
        assert sum(path.startswith(prefix) for prefix in prefixes) == 1
    for prefix in prefixes:
        assert any(path.startswith(prefix) for path in paths)
        assert not any(other.startswith(prefix) for other in prefixes if other != prefix)


def test_numbered_names_are_listed_a_page_at_a_time() -> None:
    prefixes = split_prefixes([f"ranges/{number:08d}" for number in range(200_000)], 1_000)
    assert prefixes == [f"ranges/{number:05d}" for number in range(200)]
