"""Google Cloud Storage as a store: the contract against the emulator; faults and large objects against our fake."""

from __future__ import annotations

import subprocess
import sys
import threading

import google_crc32c
import pytest

from support.forks import exit_code_of_fork
from support.stores.gcs_emulator import gcs_bucket, gcs_host, gcs_uri  # noqa: F401  fixtures
from support.stores.gcs_fake import FakeGcs, Fault
from support.stores.storage_contract import StoreContract, paths, put, race
from tokenization_worker.errors import SpecError, TemporaryError, TokenizationError
from tokenization_worker.output.create_only import place
from tokenization_worker.storage.base import NotFound, PreconditionFailed, Store
from tokenization_worker.storage.gcs.client import RETRY, gcs_client
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.gcs.upload import CHUNK_BYTES
from tokenization_worker.storage.open import open_store

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

LARGE = bytes(range(256)) * (CHUNK_BYTES // 256) * 2 + b"and the rest"
QUICK = RETRY.with_delay(initial=0.001, maximum=0.01).with_timeout(0.5)


class TestGcsStore(StoreContract):
    @pytest.fixture
    def store(self, gcs_uri: str) -> Store:  # noqa: F811
        return open_store(gcs_uri)


@pytest.fixture
def store(fake: FakeGcs) -> GcsStore:
    return GcsStore("gs://bucket/out", retry=QUICK)


# What is not local about it


def test_it_is_no_place_on_this_machine(store: GcsStore) -> None:
    assert store.local_path("a") is None
    assert store.free_bytes() is None


def test_a_trailing_slash_of_the_uri_is_not_part_of_paths(fake: FakeGcs) -> None:
    put(GcsStore("gs://bucket/out/"), "a", b"x")
    put(GcsStore("gs://bucket/"), "b", b"y")
    assert list(fake.objects) == ["out/a", "b"]
    assert paths(GcsStore("gs://bucket")) == ["b", "out/a"]


def test_objects_that_stand_for_folders_are_not_listed(fake: FakeGcs, store: GcsStore) -> None:
    for name in ("out/", "out/a/", "out/a/b", "outside"):
        fake.put(name, b"")
    assert paths(store) == ["a/b"]


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["one-request", "resumable"])
def test_version_checksum_and_metadata_come_back(fake: FakeGcs, store: GcsStore, data: bytes) -> None:
    with store.upload("a") as upload:
        upload.write(data)
        entry = upload.commit({"digest": "abc", "tokens": "12"})
    assert entry.version == str(fake.objects["out/a"].generation)
    assert entry.crc32c == google_crc32c.value(data)
    assert entry.metadata == {"digest": "abc", "tokens": "12"}
    assert store.stat("a") == entry
    assert list(store.list()) == [entry]


# Large objects


def test_a_large_object_passes_in_chunks_and_appears_at_once(fake: FakeGcs, store: GcsStore) -> None:
    with store.upload("a") as upload:
        for start in range(0, len(LARGE), 1_000_000):
            upload.write(LARGE[start : start + 1_000_000])
        assert len(upload._buffer) <= CHUNK_BYTES
        assert sum(len(session.data) for session in fake.sessions.values()) >= CHUNK_BYTES  # the next is under way
        assert store.stat("a") is None
        upload.commit()
    assert store.read("a") == LARGE


def test_a_chunk_is_under_way_while_the_next_one_is_written(fake: FakeGcs, store: GcsStore) -> None:
    arrived, written = threading.Event(), threading.Event()

    def hold(request: str) -> None:
        if request.startswith("PUT"):
            arrived.set()
            assert written.wait(120)

    fake.hold = hold
    with store.upload("a") as upload:
        upload.write(LARGE[: CHUNK_BYTES + 1])
        assert arrived.wait(120)
        upload.write(LARGE[CHUNK_BYTES + 1 : 2 * CHUNK_BYTES])
        written.set()
        upload.write(LARGE[2 * CHUNK_BYTES :])
        upload.commit()
    assert store.read("a") == LARGE


def test_a_chunk_that_failed_fails_the_upload(fake: FakeGcs) -> None:
    fake.faults += [Fault("PUT", "upload_id", 403, "no")] * 2
    with pytest.raises(SpecError, match="cannot write gs://bucket/out/a"):
        put(GcsStore("gs://bucket/out", retry=QUICK), "a", LARGE[: CHUNK_BYTES + 1])
    assert not fake.objects
    assert not fake.sessions


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_sizes_around_a_chunk_are_exact(store: GcsStore, extra: int) -> None:
    for chunks in (1, 2):
        data = b"z" * (chunks * CHUNK_BYTES + extra)
        assert put(store, f"{chunks}", data).size == len(data)
        assert store.read(f"{chunks}") == data


def test_a_large_object_arrives_whole_at_the_emulator(gcs_uri: str) -> None:  # noqa: F811
    entry = put(open_store(gcs_uri), "a", LARGE)
    assert (entry.size, entry.crc32c) == (len(LARGE), google_crc32c.value(LARGE))
    assert open_store(gcs_uri).read("a") == LARGE


def test_of_threads_that_create_one_large_object_exactly_one_wins(fake: FakeGcs, store: GcsStore) -> None:
    contents = [bytes([racer]) * (CHUNK_BYTES + 1) for racer in range(4)]
    assert race([lambda c=c: put(store, "a", c) for c in contents]) == 1  # type: ignore[misc]
    assert fake.objects["out/a"].data in contents


def test_a_large_object_that_is_there_already_is_not_sent_again(fake: FakeGcs, store: GcsStore) -> None:
    put(store, "a", b"something else")
    del fake.requests[:]
    with pytest.raises(PreconditionFailed):
        put(store, "a", LARGE)
    assert not [line for line in fake.requests if not line.startswith("GET")]


def test_an_abandoned_large_upload_is_cancelled(fake: FakeGcs, store: GcsStore) -> None:
    with store.upload("a") as upload:
        upload.write(LARGE)
        assert len(fake.sessions) == 1
    assert not fake.sessions
    assert not fake.objects


def test_a_chunk_kept_in_part_is_completed(fake: FakeGcs, store: GcsStore) -> None:
    fake.faults += [Fault("PUT", "upload_id", keep=256 << 10), Fault("PUT", "upload_id", keep=512 << 10)]
    put(store, "a", LARGE)
    assert store.read("a") == LARGE


def test_the_last_chunk_kept_in_part_is_completed(fake: FakeGcs, store: GcsStore) -> None:
    with store.upload("a") as upload:
        upload.write(LARGE)
        fake.faults += [Fault("PUT", "upload_id", keep=0), Fault("PUT", "upload_id", keep=5)]
        upload.commit()
    assert store.read("a") == LARGE


# Answers that get lost, checksums that do not match

LOST = [Fault("POST", "/upload/", 503, done=True), Fault("POST", "/upload/", 0, done=True)]
LOST_LARGE = [Fault("PUT", "upload_id", 503, done=True), Fault("PUT", "upload_id", 0, done=True)]


@pytest.mark.parametrize("fault", LOST, ids=["503", "broken"])
def test_a_success_whose_answer_was_lost_is_a_success(fake: FakeGcs, store: GcsStore, fault: Fault) -> None:
    fake.faults.append(fault)
    entry = put(store, "a", b"mine")
    assert entry == store.stat("a")
    assert len([line for line in fake.requests if line.startswith("POST")]) == 2


@pytest.mark.parametrize("fault", LOST_LARGE, ids=["503", "broken"])
@pytest.mark.parametrize("chunk", ["first", "last"])
def test_a_large_success_whose_answer_was_lost_is_a_success(
    fake: FakeGcs, store: GcsStore, fault: Fault, chunk: str
) -> None:
    with store.upload("a") as upload:
        if chunk == "first":
            fake.faults.append(fault)
        upload.write(LARGE)
        if chunk == "last":
            fake.faults.append(fault)
        entry = upload.commit()
    assert not fake.faults
    assert entry == store.stat("a")
    assert store.read("a") == LARGE


@pytest.mark.parametrize("data", [b"mine", LARGE], ids=["one-request", "resumable"])
def test_a_refused_write_is_ours_only_with_the_same_content(fake: FakeGcs, store: GcsStore, data: bytes) -> None:
    with store.upload("same") as upload, store.upload("other") as other:
        upload.write(data)
        other.write(data)
        fake.put("out/same", data)
        fake.put("out/other", data[:-1] + b"!")
        assert upload.commit().version == str(fake.objects["out/same"].generation)
        upload.retract()  # it may be another's after all
        assert fake.objects["out/same"].data == data
        with pytest.raises(PreconditionFailed):
            other.commit()


def test_whoever_may_not_rely_on_an_equal_object_replaces_it(fake: FakeGcs, store: GcsStore) -> None:
    """A later epoch; the upload alone would take a voided writer's object for its own."""
    fake.put("out/a", b"same")
    found = fake.objects["out/a"].generation
    entry = place(
        store, "a", lambda upload: upload.write(b"same"), is_same=lambda found: False, allow_replace=lambda: None
    )
    assert found < fake.objects["out/a"].generation == int(entry.version)


def test_a_retracted_upload_that_was_replaced_meanwhile_stays(store: GcsStore) -> None:
    with store.upload("a") as upload:
        upload.write(b"mine")
        newer = put(store, "a", b"mine", upload.commit().version)
        upload.retract()
    assert store.stat("a") == newer


@pytest.mark.parametrize("data", [b"mine", LARGE], ids=["one-request", "resumable"])
def test_bytes_damaged_on_the_way_in_are_removed_again(fake: FakeGcs, store: GcsStore, data: bytes) -> None:
    fake.damage = lambda data: data[:-1] + b"?"
    with pytest.raises(TemporaryError, match="CRC32C") as raised:
        put(store, "a", data)
    assert raised.value.reason == "StorageFailed"
    assert not fake.objects


def test_damaged_bytes_that_cannot_be_removed_are_named_with_their_generation(fake: FakeGcs, store: GcsStore) -> None:
    fake.damage = lambda data: data + b"?"
    fake.faults.append(Fault("DELETE", "/o/", 403, "no"))
    with pytest.raises(TemporaryError, match="could not remove it") as raised:
        put(store, "a", b"mine")
    assert str(fake.objects["out/a"].generation) in raised.value.message


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: b""], ids=["cut", "flipped", "none"]
)
def test_bytes_damaged_on_the_way_out_are_never_returned(fake: FakeGcs, store: GcsStore, damage: object) -> None:
    put(store, "a", b"mine")
    fake.damage = damage  # type: ignore[assignment]
    with pytest.raises(TemporaryError, match="out/a"):
        store.read("a")


def test_bytes_that_come_without_a_checksum_are_not_trusted(fake: FakeGcs, store: GcsStore) -> None:
    put(store, "a", b"mine")
    fake.gives_checksums = False
    with pytest.raises(TemporaryError, match="wrong checksum, or without one"):
        store.read("a")


def test_a_delete_leaves_what_somebody_wrote_meanwhile(fake: FakeGcs, store: GcsStore) -> None:
    put(store, "a", b"old")
    fake.faults.append(Fault("DELETE", "/o/", meanwhile=lambda: fake.put("out/a", b"new")))
    store.delete("a")
    assert store.read("a") == b"new"


def test_removing_a_damaged_upload_leaves_what_somebody_wrote_meanwhile(fake: FakeGcs, store: GcsStore) -> None:
    def somebody_writes() -> None:
        fake.damage = lambda data: data
        fake.put("out/a", b"theirs")

    fake.damage = lambda data: data + b"?"
    fake.faults.append(Fault("DELETE", "/o/", meanwhile=somebody_writes))
    with pytest.raises(TemporaryError, match="CRC32C"):
        put(store, "a", b"mine")
    assert store.read("a") == b"theirs"


def test_a_delete_whose_answer_was_lost_is_done(fake: FakeGcs, store: GcsStore) -> None:
    put(store, "a", b"x")
    fake.faults.append(Fault("DELETE", "/o/", 503, done=True))
    store.delete("a")
    assert not fake.objects


# Errors

FORBIDDEN = "robot@project.iam.gserviceaccount.com does not have storage.objects.create access to the bucket."


def read(store: GcsStore) -> object:
    return store.read("a")


def write(store: GcsStore) -> object:
    return put(store, "a", b"x")


def write_large(store: GcsStore) -> object:
    return put(store, "a", LARGE)


def list_all(store: GcsStore) -> object:
    return list(store.list())


@pytest.mark.parametrize(
    ("action", "method"), [(read, "GET"), (list_all, "GET"), (write, "POST")], ids=["read", "list", "write"]
)
@pytest.mark.parametrize(
    ("status", "text", "error", "reason", "words"),
    [
        (403, FORBIDDEN, SpecError, "OutputNotWritable", "--member=serviceAccount:robot@project.iam.gserviceaccount"),
        (403, "denied", SpecError, "OutputNotWritable", "--member=serviceAccount:ACCOUNT"),
        (401, "Invalid Credentials", SpecError, "OutputNotWritable", "run gcloud auth application-default login"),
        (404, "The specified bucket does not exist.", SpecError, "OutputNotWritable", "buckets create gs://bucket"),
        (503, "backend error", TemporaryError, "StorageFailed", "backend error"),
        (429, "slow down", TemporaryError, "StorageFailed", "slow down"),
        (400, "nonsense", TemporaryError, "StorageFailed", "nonsense"),
        (0, "", TemporaryError, "StorageFailed", "out/"),
    ],
    ids=["403-known", "403-unknown", "401", "404-bucket", "503", "429", "400", "broken"],
)
def test_errors_say_what_to_do(
    fake: FakeGcs,
    action: object,
    method: str,
    status: int,
    text: str,
    error: type[TokenizationError],
    reason: str,
    words: str,
) -> None:
    fake.put("out/a", b"x")
    fake.faults += [Fault(method, "/b/bucket/o", status, text)] * 2000
    store = GcsStore("gs://bucket/out", retry=QUICK.with_timeout(0.02))
    with pytest.raises(error) as raised:
        action(store)  # type: ignore[operator]
    assert raised.value.reason == (reason if method == "POST" else reason.replace("NotWritable", "NotReadable"))
    assert words in str(raised.value)
    assert "gs://bucket/out/" in raised.value.message
    assert "http:" not in str(raised.value)


def test_an_upload_url_stays_secret_in_errors(fake: FakeGcs) -> None:
    fake.faults += [Fault("PUT", "upload_id", 0)] * 2000
    with pytest.raises(TemporaryError) as raised:
        write_large(GcsStore("gs://bucket/out", retry=QUICK.with_timeout(0.02)))
    assert "secret-" not in str(raised.value)


def test_a_forgotten_upload_is_temporary(fake: FakeGcs, store: GcsStore) -> None:
    with pytest.raises(TemporaryError, match="lost the upload"), store.upload("a") as upload:
        upload.write(LARGE)
        fake.sessions.clear()
        upload.commit()
    assert not fake.objects


def test_a_request_that_may_be_repeated_is(fake: FakeGcs, store: GcsStore) -> None:
    fake.faults += [Fault("POST", "/upload/", 503), Fault("GET", "/o/", 503), Fault("GET", "/o?", 429)]
    put(store, "a", b"x")
    assert store.read("a") == b"x"
    assert paths(store) == ["a"]
    assert not fake.faults


def test_a_missing_object_is_not_a_missing_bucket(fake: FakeGcs, store: GcsStore) -> None:
    with pytest.raises(NotFound):
        store.read("a")
    with pytest.raises(SpecError, match="'other-bucket' does not exist"):
        GcsStore("gs://other-bucket/out", retry=QUICK).read("a")
    with pytest.raises(SpecError, match="'other-bucket' does not exist"):
        GcsStore("gs://other-bucket/out", retry=QUICK).stat("a")


@pytest.mark.parametrize("uri", ["gs://", "gs:///a", "gs://UPPER/a", "gs://b*/a", "gs://x/a"])
def test_what_is_not_a_bucket_is_refused_without_a_request(uri: str) -> None:
    with pytest.raises(SpecError, match="not the name of a bucket"):
        open_store(uri)


def test_missing_credentials_say_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(SpecError, match="gcloud auth application-default login") as raised:
        GcsStore("gs://bucket/out", retry=QUICK).stat("a")
    assert raised.value.reason == "OutputNotReadable"


# The client


def test_each_process_has_one_client_of_its_own(fake: FakeGcs, store: GcsStore) -> None:
    put(store, "a", b"x")
    assert gcs_client() is gcs_client()
    before = gcs_client()
    assert exit_code_of_fork(lambda: gcs_client() is not before and store.read("a") == b"x") == 0


def test_local_work_does_not_load_the_google_client() -> None:
    program = (
        "import sys, tempfile\n"
        "from tokenization_worker.storage.open import open_store\n"
        "from tokenization_worker.storage.sources import list_source\n"
        "list(open_store(tempfile.gettempdir() + '/none').list()); list_source((sys.executable,))\n"
        "assert not [name for name in sys.modules if name.startswith(('google.cloud', 'requests'))]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
