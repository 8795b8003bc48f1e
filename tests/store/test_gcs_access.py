"""Whole runs on a bucket with rules: who pays, who may what, folders, and how often an object may be written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from support.engine.inline import inline
from support.stores.bucket_job import JOB
from support.stores.gcs_fake import FakeGcs, Fault
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.output import layout
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.gcs.client import PAYER, RETRY, PatientRetry
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.gcs.upload import CHUNK_BYTES
from tokenization_worker.verification.verify import verify

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ROBOT = "robot@project.iam.gserviceaccount.com"


@pytest.fixture(autouse=True)
def _three_files(fake: FakeGcs) -> None:
    for number in range(3):
        lines = [json.dumps({"text": f"file {number}, line {line}: some text"}) for line in range(200)]
        fake.put(f"corpus/{number}.jsonl", "\n".join(lines).encode())


def run(job: TokenizationJob = JOB) -> None:
    run_job(job, options=Options(processes=2), executor=inline())


def shards(fake: FakeGcs) -> dict[str, bytes]:
    return {name: stored.data for name, stored in fake.objects.items() if name.endswith(".npy")}


# Who pays


def test_every_request_says_who_pays(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAYER, "payer-1")
    run()
    with GcsStore("gs://bucket/out").upload("large") as upload:
        upload.write(b"x" * (CHUNK_BYTES + 1))
        upload.commit()
    list(GcsStore("gs://bucket/out").read_ranges("large", [(0, 5), (7, 9)]))
    kinds = set()
    for request in fake.requests:
        method, _, url = request.partition(" ")
        query = parse_qs(urlsplit(url).query)
        if "upload_id" in query:  # a session belongs to whoever began it
            continue
        assert query.get("userProject") == ["payer-1"], request
        kinds.add((method, query.get("alt", query.get("uploadType", ["" if "/o/" in url else "list"]))[0]))
    kinds_of_requests = {("GET", "list"), ("GET", ""), ("GET", "media"), ("POST", "multipart"), ("POST", "resumable")}
    assert kinds >= kinds_of_requests | {("DELETE", "")}


def test_nobody_is_named_where_nobody_was_named(fake: FakeGcs) -> None:
    run()
    assert not [request for request in fake.requests if "userProject" in request]


NO_PAYER = "Bucket is a requester pays bucket but no user project provided."


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [("GET", "corpus", "SourceNotReadable"), ("POST", "/upload/", "OutputNotWritable")],
    ids=["source", "output"],
)
def test_a_bucket_whose_requesters_pay_says_what_to_set(fake: FakeGcs, method: str, path: str, reason: str) -> None:
    fake.faults.append(Fault(method, path, 400, NO_PAYER))
    with pytest.raises(SpecError, match="billed to the requester") as raised:
        run()
    assert raised.value.reason == reason
    assert raised.value.next_step.startswith("export GOOGLE_CLOUD_QUOTA_PROJECT=PROJECT")


def test_who_may_not_bill_a_project_is_told_the_role_there(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAYER, "payer-1")
    text = f"{ROBOT} does not have serviceusage.services.use access to the Google Cloud project."
    fake.faults.append(Fault("GET", "corpus", 403, text))
    with pytest.raises(SpecError, match=f"{ROBOT} lacks serviceusage.services.use") as raised:
        run()
    assert raised.value.next_step == (
        f"gcloud projects add-iam-policy-binding payer-1 --member=serviceAccount:{ROBOT} "
        "--role=roles/serviceusage.serviceUsageConsumer"
    )


# Who may what: told before any work


OUTPUT = "gcloud storage buckets add-iam-policy-binding gs://bucket --member=serviceAccount:" + ROBOT
REFUSED: list[tuple[str, Fault, str, str]] = [
    ("list", Fault("GET", "prefix=corpus", 403, "storage.objects.list"), "SourceNotReadable", OUTPUT),
    ("list-output", Fault("GET", "/o?", 403, "storage.objects.list"), "OutputNotReadable", OUTPUT),
    ("read", Fault("GET", "0.jsonl?alt=media", 403, "storage.objects.get"), "SourceNotReadable", OUTPUT),
    ("look", Fault("GET", "index.json", 403, "storage.objects.get"), "OutputNotReadable", OUTPUT),
    ("create", Fault("POST", "/upload/", 403, "storage.objects.create"), "OutputNotWritable", OUTPUT),
    ("delete", Fault("DELETE", "/o/", 403, "storage.objects.delete"), "OutputNotWritable", OUTPUT),
    (
        "no-account",
        Fault("POST", "/upload/", 401, "Anonymous caller"),
        "OutputNotWritable",
        "run gcloud auth application",
    ),
    ("no-bucket", Fault("GET", "index.json", 404, "The specified bucket does not exist."), "OutputNotReadable", ""),
]


@pytest.mark.parametrize("begin", [run, lambda: preview_run(JOB, 2)], ids=["run", "plan"])
@pytest.mark.parametrize(
    ("fault", "reason", "next_step"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_not_permitted_is_refused_before_any_work(
    fake: FakeGcs, begin: Callable[[], Any], fault: Fault, reason: str, next_step: str
) -> None:
    text = f"{ROBOT} does not have {fault.text} access to the bucket." if fault.status == 403 else fault.text
    fake.faults += [Fault(fault.method, fault.path, fault.status, text)] * 100
    with pytest.raises(SpecError) as raised:
        begin()
    assert raised.value.exit_code == 2
    assert raised.value.reason == reason
    if fault.status == 403:
        assert f"{ROBOT} lacks {fault.text}: " in raised.value.message
    assert raised.value.next_step.startswith(next_step)
    assert set(fake.objects) <= {"corpus/0.jsonl", "corpus/1.jsonl", "corpus/2.jsonl", "out/_tokenization/probe"}


def test_a_probe_that_somebody_left_is_taken_away(fake: FakeGcs) -> None:
    fake.put("out/_tokenization/probe", b"")
    run()
    assert "out/_tokenization/probe" not in fake.objects


# Folders


def test_folders_of_a_bucket_that_has_some_are_neither_made_nor_taken_for_files(fake: FakeGcs) -> None:
    run()
    expected = shards(fake)
    for name in [name for name in fake.objects if not name.startswith("corpus/")]:
        del fake.objects[name]
    for folder in ("corpus/", "corpus/empty/", "out/", "out/train/", "out/_tokenization/", "out/_tokenization/epochs/"):
        fake.put(folder, b"")
    del fake.requests[:]
    run()
    assert shards(fake) == expected
    assert verify("gs://bucket/out", processes=1).is_clean
    paths = {urlsplit(request.partition(" ")[2]).path for request in fake.requests}
    assert not [path for path in paths if "/folders" in path or "storageLayout" in path or path.endswith("%2F")]


# How often an object is written


def deleted_object(request: str) -> str | None:
    method, _, url = request.partition(" ")
    return unquote(urlsplit(url).path.partition("/o/")[2]) if method == "DELETE" else None


def test_no_object_is_written_twice(fake: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: Counter[str] = Counter()
    put = fake.put

    def count_and_put(name: str, *arguments: Any, **more: Any) -> bool:
        writes[name] += layout.ALIVE not in name  # written again each minute
        return put(name, *arguments, **more)

    monkeypatch.setattr(fake, "put", count_and_put)
    run()
    assert len(writes) > 20
    assert set(writes.values()) <= {0, 1}
    deleted = Counter(filter(None, map(deleted_object, fake.requests)))
    assert set(deleted.values()) == {1}
    assert all("/segments/" in name or layout.ALIVE in name or name.endswith("/probe") for name in deleted)


@pytest.mark.parametrize("size", [10, CHUNK_BYTES + 10], ids=["one-request", "resumable"])
def test_too_many_writes_of_an_object_are_waited_out_with_jitter(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(PatientRetry, "sleep", staticmethod(waits.append))
    text = "The object bucket/out/a exceeded the rate limit for object mutation operations."
    method = "POST" if size < CHUNK_BYTES else "PUT"
    fake.faults += [Fault(method, "/upload/", 429, text)] * 5
    with GcsStore("gs://bucket/out", retry=RETRY).upload("a") as upload:
        upload.write(b"x" * size)
        upload.commit()
    assert len(fake.objects["out/a"].data) == size
    assert len(waits) == len(set(waits)) == 5
    assert all(0 <= wait <= 2**number for number, wait in enumerate(waits))


@pytest.mark.parametrize("host", ["garbage", "127.0.0.1:9000", "http://a b"])
def test_an_emulator_that_is_no_address_is_named(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
    with pytest.raises(SpecError, match=f"STORAGE_EMULATOR_HOST is '{host}'"):
        run_job(JOB)
