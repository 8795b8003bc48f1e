"""Source files in S3: what a real server says, and what a bad network makes of it."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.patience import Clock, quick_retry
from support.stores.flaky_proxy import Fault, Proxy, serve_flaky_proxy
from support.stores.s3_server import PUBLIC, put_s3, s3_bucket, s3_host, s3_writer, use_s3
from tokenization_worker.errors import ChangedError, SpecError, TemporaryError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import BLOCK_BYTES, FIRST_BYTES
from tokenization_worker.storage.retry import Retry
from tokenization_worker.storage.s3.source import S3Source
from tokenization_worker.storage.sources import list_source, open_source, open_unchanged, read_uri

pytestmark = pytest.mark.slow

__all__ = ["s3_bucket", "s3_host"]

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@pytest.fixture
def proxy(s3_host: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What `s3://` leads to in this test, with the real server behind it."""
    with serve_flaky_proxy(s3_host) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def put(host: str, bucket: str, key: str, data: bytes) -> str:
    """Write an object; returns its URI."""
    put_s3(host, bucket, "")(key, data)
    return f"s3://{bucket}/{key}"


def test_a_bucket_is_a_folder_and_folder_marks_are_no_files(s3_host: str, s3_bucket: str) -> None:
    for key in ("a", "sub/", "sub/b", "_SUCCESS"):
        put(s3_host, s3_bucket, key, b"x" if key[-1] != "/" else b"")
    for pattern in (f"s3://{s3_bucket}", f"s3://{s3_bucket}/", f"s3://{s3_bucket}/**"):
        assert [file.uri for file in list_source((pattern,))] == [f"s3://{s3_bucket}/{key}" for key in ("a", "sub/b")]
    with pytest.raises(NotFound):
        read_uri(f"s3://{s3_bucket}/sub/")


def test_keys_of_any_characters_are_listed_and_read_by_their_name(s3_host: str, s3_bucket: str) -> None:
    keys = ["a b", "a%20b", "a+b", "a&b=c", "a#b?c", "ä/ö", "日本.jsonl", "'\"<>", "a:b@c"]
    for key in keys:
        put(s3_host, s3_bucket, f"corpus/{key}", key.encode())
    files = list_source((f"s3://{s3_bucket}/corpus",))
    assert [file.uri for file in files] == [f"s3://{s3_bucket}/corpus/{key}" for key in sorted(keys, key=str.encode)]
    assert [read_uri(file.uri) for file in files] == [key.encode() for key in sorted(keys, key=str.encode)]
    assert [list_source((file.uri,)) for file in files] == [[file] for file in files]


def test_more_files_than_a_page_holds_are_all_listed(s3_host: str, s3_bucket: str) -> None:
    keys = [f"many/{number:05d}" for number in range(1_100)]
    write = put_s3(s3_host, s3_bucket, "")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: write(key, b"x"), keys))
    assert [file.uri for file in list_source((f"s3://{s3_bucket}/many/*",))] == [f"s3://{s3_bucket}/{k}" for k in keys]


def test_folders_that_no_match_can_lie_in_are_not_listed(s3_host: str, s3_bucket: str, proxy: Proxy) -> None:
    for key in ("a.jsonl", *(f"below/{number}" for number in range(5))):
        put(s3_host, s3_bucket, key, b"x")
    assert [file.size for file in S3Source().list(Pattern.parse(f"s3://{s3_bucket}/*.jsonl"))] == [1]
    assert len(list(S3Source().list(Pattern.parse(f"s3://{s3_bucket}/**.jsonl")))) == 6


def test_the_version_is_the_etag_whether_listed_or_looked_at(s3_host: str, s3_bucket: str) -> None:
    uri = put(s3_host, s3_bucket, "a", b"abc")
    [listed] = list_source((f"s3://{s3_bucket}/*",))
    assert (listed.size, listed.version, listed.pin) == (3, "etag:900150983cd24fb0d6963f7d28e17f72", "")
    assert list_source((uri,)) == [listed]
    writer = s3_writer(s3_host)
    upload = writer.create_multipart_upload(Bucket=s3_bucket, Key="parts")["UploadId"]
    where = {"Bucket": s3_bucket, "Key": "parts", "UploadId": upload}
    tags = [
        writer.upload_part(**where, PartNumber=number, Body=part)["ETag"]
        for number, part in ((1, b"x" * (5 << 20)), (2, b"y"))
    ]
    parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
    writer.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    [file] = list_source((f"s3://{s3_bucket}/parts",))
    assert file.version.endswith("-2")
    with open_unchanged(file.uri, file.size, file.version) as stream:
        assert stream.seek(-2, io.SEEK_END) and stream.read() == b"xy"


def test_reads_run_ahead_while_they_go_on_and_no_byte_comes_twice(s3_host: str, s3_bucket: str, proxy: Proxy) -> None:
    data = random.Random(3).randbytes(FIRST_BYTES + 3 * BLOCK_BYTES)
    stream = open_source(put(s3_host, s3_bucket, "a", data))
    assert b"".join(iter(lambda: stream.read(100_000), b"")) == data
    asked = sorted(tuple(map(int, each.removeprefix("bytes=").split("-"))) for each in proxy.ranges)
    assert [start for start, _ in asked] == [0, *(end + 1 for _, end in asked[:-1])]
    assert [end + 1 - start for start, end in asked] == [FIRST_BYTES, *[BLOCK_BYTES] * 3]
    del proxy.ranges[:]
    stream.seek(7)
    assert stream.read(10) == data[7:17]
    assert proxy.ranges == [f"bytes=7-{6 + FIRST_BYTES}"]


def test_a_file_replaced_while_it_is_read_stops_the_read(s3_host: str, s3_bucket: str) -> None:
    uri = put(s3_host, s3_bucket, "a", b"x" * (FIRST_BYTES + 1))
    stream = open_source(uri)
    assert len(stream.read(FIRST_BYTES)) == FIRST_BYTES
    put(s3_host, s3_bucket, "a", b"y" * (FIRST_BYTES + 1))
    with pytest.raises(ChangedError, match="replaced or deleted while it was read") as raised:
        stream.read(1)
    assert raised.value.reason == "SourceChanged"
    s3_writer(s3_host).delete_object(Bucket=s3_bucket, Key="a")
    with pytest.raises(ChangedError, match="replaced or deleted"):
        stream.read(1)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "/a", 503, SLOW_DOWN),
        Fault("GET", "/a", 429),
        Fault("GET", "/a", 500),
        Fault("GET", "/a", 400, b"<Error><Code>RequestTimeout</Code></Error>"),
        Fault("GET", "/a", 400, b"<Error><Code>Throttling</Code></Error>"),
        Fault("GET", "/a", 409, b"<Error><Code>OperationAborted</Code></Error>"),
        Fault("GET", "/a"),
        Fault("GET", "/a", after=3),
    ],
    ids=["503", "429", "500", "timed-out", "throttled", "aborted", "broken", "broken-in-the-body"],
)
def test_what_passes_is_tried_again(s3_host: str, s3_bucket: str, proxy: Proxy, fault: Fault) -> None:
    uri = put(s3_host, s3_bucket, "a", b"0123456789")
    _, stream = S3Source(retry=quick_retry()).open(uri)
    proxy.faults += [fault, fault]
    assert stream.read(10) == b"0123456789"
    assert not proxy.faults


@pytest.mark.parametrize("status", [429, 503])
def test_a_rate_limit_is_waited_for_as_long_as_it_says(s3_host: str, s3_bucket: str, proxy: Proxy, status: int) -> None:
    clock = Clock()
    source = S3Source(retry=Retry(clock=lambda: clock.now, sleep=clock.sleep))
    _, stream = source.open(put(s3_host, s3_bucket, "a", b"0123456789"))
    proxy.faults += [Fault("GET", "/a", status, SLOW_DOWN, headers={"retry-after": "150"})] * 2
    assert stream.read(10) == b"0123456789"
    assert 300 <= clock.now < 310


@pytest.mark.parametrize(
    ("code", "step"),
    [("InvalidObjectState", "restore it"), ("RequestTimeTooSkewed", "clock")],
    ids=["archived", "clock"],
)
def test_a_refusal_that_is_not_about_who_asks_says_so(
    s3_host: str, s3_bucket: str, proxy: Proxy, code: str, step: str
) -> None:
    uri = put(s3_host, s3_bucket, "a", b"0123456789")
    _, stream = S3Source(retry=quick_retry()).open(uri)
    proxy.faults += [Fault("GET", "/a", 403, f"<Error><Code>{code}</Code></Error>".encode())]
    with pytest.raises(SpecError) as raised:
        stream.read(10)
    assert step in str(raised.value)
    assert "lacks" not in str(raised.value)


def test_a_body_that_stalls_is_given_up_and_read_again(
    s3_host: str, s3_bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = put(s3_host, s3_bucket, "a", b"0123456789")
    monkeypatch.setattr("tokenization_worker.storage.s3.client.TIMEOUT_S", 0.3)
    _, stream = S3Source(retry=quick_retry()).open(uri)
    proxy.faults += [Fault("GET", "/a", after=3, stalls=True)]
    assert stream.read(10) == b"0123456789"
    assert not proxy.faults


@pytest.mark.parametrize("what", ["list", "stat", "read"])
def test_what_does_not_pass_is_temporary(s3_host: str, s3_bucket: str, proxy: Proxy, what: str) -> None:
    uri = put(s3_host, s3_bucket, "folder/a", b"0123456789")
    source = S3Source(retry=quick_retry())
    _, stream = source.open(uri)
    proxy.faults += [Fault(method, s3_bucket, 503, SLOW_DOWN) for method in ("GET", "HEAD") for _ in range(50)]
    with pytest.raises(TemporaryError) as raised:
        if what == "list":
            list(source.list(Pattern.parse(f"s3://{s3_bucket}/*")))
        elif what == "stat":
            source.stat(uri)
        else:
            stream.read(1)
    assert raised.value.reason == "StorageFailed"
    assert "503" in str(raised.value)
    assert len(proxy.faults) < 95


def test_a_range_that_is_ignored_is_not_taken_for_it(s3_host: str, s3_bucket: str, proxy: Proxy) -> None:
    _, stream = S3Source(retry=quick_retry()).open(put(s3_host, s3_bucket, "a", b"0123456789" * FIRST_BYTES))
    stream.seek(FIRST_BYTES)
    proxy.faults += [Fault("GET", "/a", 200, b"0123456789" * FIRST_BYTES)]
    with pytest.raises(TemporaryError, match=f"asked for bytes .* got {10 * FIRST_BYTES} bytes"):
        stream.read(1)


def test_a_service_that_is_not_there_is_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    use_s3("http://127.0.0.1:9", monkeypatch, "writer")
    with pytest.raises(TemporaryError, match=r"127\.0\.0\.1:9"):
        S3Source(retry=quick_retry()).stat("s3://bucket/a")


@pytest.mark.parametrize("pattern", ["a", "*", "folder/"], ids=["file", "glob", "folder"])
@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("outsider", ["this principal lacks s3:", "aws sts get-caller-identity"]),
        (None, ["an anonymous request (no credentials were found) lacks s3:", "set AWS_PROFILE"]),
        ("stranger", ["AWS_ACCESS_KEY_ID"]),
    ],
    ids=["not-allowed", "nobody", "unknown"],
)
def test_a_source_that_may_not_be_read_says_how_to_change_that(
    s3_host: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, who: str | None, words: list[str], pattern: str
) -> None:
    put(s3_host, s3_bucket, "a", b"x")
    use_s3(s3_host, monkeypatch, who)
    with pytest.raises(SpecError) as raised:
        list_source((f"s3://{s3_bucket}/{pattern}",))
    assert raised.value.reason == "SourceNotReadable"
    assert all(each in str(raised.value) for each in words), str(raised.value)


def test_a_public_bucket_needs_no_credentials(s3_host: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = put(s3_host, PUBLIC, "open/a", b"x")
    use_s3(s3_host, monkeypatch, None)
    assert [file.uri for file in list_source((f"s3://{PUBLIC}/open/*",))] == [uri]
    assert read_uri(uri) == b"x"


def test_a_bucket_that_does_not_exist_is_named(s3_bucket: str) -> None:
    for pattern in ("a", "*"):
        with pytest.raises(SpecError, match="bucket 'no-such-bucket' does not exist") as raised:
            list_source((f"s3://no-such-bucket/{pattern}",))
        assert raised.value.reason == "SourceNotReadable"


@pytest.mark.parametrize("uri", ["s3://corpus-*/a", "s3://x/a", "s3://-corpus/a"])
def test_what_is_no_bucket_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="not the name of a bucket"):
        list_source((uri,))


def test_settings_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use_s3("localhost:9000", monkeypatch, "writer")
    with pytest.raises(SpecError, match=r"AWS_ENDPOINT_URL is .*: expected http://host:port"):
        list_source(("s3://bucket/a",))
    use_s3("http://127.0.0.1:9", monkeypatch, None)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(SpecError, match="nobody"):
        list_source(("s3://bucket/a",))


def test_the_reader_pays_only_where_that_is_said(
    s3_host: str, s3_bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenization_worker.storage.s3 import client as s3_client

    uri = put(s3_host, s3_bucket, "a", b"x")
    asked: list[str | None] = []
    client = s3_client.s3_client()
    client.meta.events.register("before-send.s3", lambda request, **_: asked.append(_payer(request)))
    read_uri(uri)
    monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")
    read_uri(uri)
    list_source((f"s3://{s3_bucket}/*",))
    assert asked == [None, None, "requester", "requester", "requester"]


def _payer(request: object) -> str | None:
    value = request.headers.get("x-amz-request-payer")  # type: ignore[attr-defined]
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize(
    ("uri", "library", "extra"),
    [("s3://bucket/a", "boto3", "s3"), ("hf://datasets/org/name/a", "huggingface_hub", "hf")],
)
def test_a_missing_client_says_what_to_install(uri: str, library: str, extra: str) -> None:
    script = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from tokenization_worker.storage.sources import list_source\n"
        f"try: list_source(({uri!r},))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("SpecError SourceNotReadable")
    assert said.endswith(f"next: {install_command(extra)}\n")
