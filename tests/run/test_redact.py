"""No output shows a secret that stands in an address, whatever a library says of a connection that fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.patience import quick_retry
from support.runs import TOKJOB
from support.stores.quick_gcs import quick_gcs
from tokenization_worker.checkpoint.reporter import Reporter, failure_report
from tokenization_worker.cli.main import main
from tokenization_worker.engine.ray.connection import require_reachable
from tokenization_worker.errors import SpecError, TemporaryError, TokenizationError, portable
from tokenization_worker.events import Progress, Resumed, Warned
from tokenization_worker.messages.redact import redact
from tokenization_worker.storage import retry
from tokenization_worker.storage.sources import list_source

SECRET = "hunter2/S3cr+et"
QUOTED = "hunter2%2FS3cr+et"
USERINFO = f"AKIAPLANTED:{QUOTED}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("http://user:pw@host:9000/b", "http://***@host:9000/b", id="user and password"),
        pytest.param("https://token@host/b", "https://***@host/b", id="a token alone"),
        pytest.param("http://a:p/w@host:1/x", "http://***@host:1/x", id="a slash in the password"),
        pytest.param("http://a:p#w?x@host:1/x", "http://***@host:1/x", id="marks of a URL in the password"),
        pytest.param("http://a:p@w@host/x", "http://***@host/x", id="an at sign in the password"),
        pytest.param("redis://:pw@host", "redis://***@host", id="a password alone"),
        pytest.param("user:pw@10.0.0.5:6379 is away", "***@10.0.0.5:6379 is away", id="no scheme"),
        pytest.param(
            "http://h/o?X-Amz-Credential=AK%2F1&X-Amz-Signature=f00&partNumber=1",
            "http://h/o?X-Amz-Credential=***&X-Amz-Signature=***&partNumber=1",
            id="a URL signed by AWS",
        ),
        pytest.param(
            "https://h/o?X-Goog-Signature=f00&X-Goog-Date=2", "https://h/o?X-Goog-Signature=***&X-Goog-Date=2", id="GCS"
        ),
        pytest.param("https://h/o?sv=2&sig=f%2F00%3D", "https://h/o?sv=2&sig=***", id="a SAS"),
        pytest.param(
            "url: /o?uploadType=resumable&upload_id=ABC (Caused by",
            "url: /o?uploadType=resumable&upload_id=*** (Caused by",
            id="upload",
        ),
        pytest.param("https://h/?access_token=abc#x", "https://h/?access_token=***#x", id="a token in a query"),
        pytest.param(
            "https://h/?Policy=a&Signature=b&Key-Pair-Id=c",
            "https://h/?Policy=***&Signature=***&Key-Pair-Id=***",
            id="CloudFront",
        ),
        pytest.param("Authorization: Bearer abc.def", "Authorization: Bearer ***", id="a header"),
        pytest.param(
            "{'authorization': 'Basic dXNlcjpwdw=='}", "{'authorization': 'Basic ***'}", id="a header in a dict"
        ),
        pytest.param("https://A:abc/def@ghi@host/x", "https://***@host/x", id="a slash and an at sign"),
        pytest.param("https://user:p@ss/w0rd@h:9000/x", "https://***@h:9000/x", id="an at sign and a slash"),
        pytest.param("http://user:p@ss/w0rd@h", "http://***@h", id="an at sign, a slash and no port"),
        pytest.param("http://u:a@b@c/d@h:1, then", "http://***@h:1, then", id="two at signs and a slash"),
        pytest.param("http://u:p@s?s#w@h/x", "http://***@h/x", id="an at sign and marks of a URL"),
        pytest.param("redis://:p@ss/w0rd@h:1", "redis://***@h:1", id="an at sign and a slash without a user"),
        pytest.param("s3://u:p@ss/w0rd@bucket/x", "s3://***@bucket/x", id="a bucket with a password"),
        pytest.param("http://u:p@h/a@b", "http://***@b", id="a path that may be a password"),
        pytest.param("('http://u:p@s/s@h/x', 'me@mail')", "('http://***@h/x', 'me@mail')", id="a URL in quotes"),
        pytest.param("http://u:p@s/s@h http://v:q@t/t@i", "http://***@h http://***@i", id="two URLs"),
        pytest.param("proxy //u:p@proxy:3128/x", "proxy //***@proxy:3128/x", id="no scheme but its slashes"),
        pytest.param("Proxy-Authorization: Basic YTpi", "Proxy-Authorization: Basic ***", id="a short header"),
        pytest.param("(b'authorization', b'Bearer abc')", "(b'authorization', b'Bearer ***')", id="a header in bytes"),
        pytest.param(
            r"{\"Authorization\": \"Bearer a\"}", r"{\"Authorization\": \"Bearer ***\"}", id="a header in JSON"
        ),
        pytest.param("Authorization: token ghp", "Authorization: token ***", id="a header of another scheme"),
        pytest.param("sent Basic dXNlcjpwdw==", "sent Basic ***", id="base64 without a header's name"),
        pytest.param("sent bearer ya29.a0AfB_by", "sent bearer ***", id="a token without a header's name"),
        pytest.param("sent Bearer abcdefghIJKLmnopqrst", "sent Bearer ***", id="letters that are no word"),
        pytest.param("https://h/#access_token=abc", "https://h/#access_token=***", id="a token in a fragment"),
        pytest.param("/o?refresh_token=a&id_token=b&key=c", "/o?refresh_token=***&id_token=***&key=***", id="OAuth"),
        pytest.param(
            "AWS4-HMAC-SHA256 Credential=AK/2/s3, SignedHeaders=host, Signature=f00",
            "AWS4-HMAC-SHA256 Credential=***, SignedHeaders=host, Signature=***",
            id="a header signed by AWS",
        ),
        pytest.param("{'x-amz-security-token': 'abc'}", "{'x-amz-security-token': '***'}", id="a session of AWS"),
        pytest.param("token hf_abcdefghijklmnopqrstuvwx", "token hf_***", id="a token of the Hub"),
    ],
)
def test_what_is_secret_in_an_address_is_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gs://bucket/a.jsonl@1234",
        "hf://datasets/org/name@v1.0/data/*.parquet",
        "hf://datasets/org/name@refs/convert/parquet/x",
        "gs://bucket/a:b@c/d",
        "/data/part:1@x.jsonl",
        "http://127.0.0.1:9000/bucket/a@b",
        "http://host:9000/user:name@x",
        "s3://bucket/a?b=c&d=e",
        "--member=serviceAccount:robot@project.iam.gserviceaccount.com --role=roles/storage.objectUser",
        "at 12:30, and mail me@example.com",
        'tokenizer.delimiter.token: found "<|endoftext|>"; sig is no parameter here, nor token=',
        "https://h/o?partNumber=1&tokens=5",
        "https://host/path/@scope/pkg",
        "https://host:443/path/@scope/pkg:1@2",
        "https://host/path:1/a@b",
        "http://[::1]:9000/bucket/a@b",
        "http://h:9000?x=a@b",
        "hf://datasets/org/name@main/file.parquet",
        "gs://b/a@b.jsonl",
        "s3://bucket/user:name@x/a@b",
        "Basic knowledge of physics",
        "the bearer certificates, a basic understanding, Basic JavaScript and BASIC PROGRAMMING",
        "Basic internationalization, basic well-known-principles of mathematics",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_long_texts_cost_little() -> None:
    """No pattern reads far twice: a megabyte takes a fraction of a second, and hours where one does."""
    for unit in (
        "a",
        "a:",
        "://",
        "x@",
        "?token",
        "http://a:",
        "http://a:x/",
        "'",
        "&x-",
        "bearer ",
        "bearer a",
        "://a:",
        "http://u:p@",
    ):
        redact(unit * (1_000_000 // len(unit)) + " @=hf_")


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def s3(monkeypatch: pytest.MonkeyPatch, port: int) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{USERINFO}@127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "writer")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setattr("tokenization_worker.storage.s3.source.Retry", quick_retry)
    return "s3://bucket/corpus/*.jsonl"


def hub(monkeypatch: pytest.MonkeyPatch, port: int) -> str:
    monkeypatch.setenv("HF_ENDPOINT", f"http://{USERINFO}@127.0.0.1:{port}")
    monkeypatch.setenv("HF_TOKEN", "hf_plantedplantedplantedplanted")
    monkeypatch.setattr("tokenization_worker.storage.hf.source.Retry", quick_retry)
    return "hf://datasets/org/name/*.jsonl"


def gcs(monkeypatch: pytest.MonkeyPatch, port: int) -> str:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{USERINFO}@127.0.0.1:{port}")
    return "gs://bucket/corpus/*.jsonl"


def proxied(monkeypatch: pytest.MonkeyPatch, port: int) -> str:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://{USERINFO}@127.0.0.1:{port}")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{USERINFO}@s3.invalid:9000")
    monkeypatch.setattr("tokenization_worker.storage.s3.source.Retry", quick_retry)
    return "s3://bucket/corpus/*.jsonl"


SERVICES = {"s3": s3, "hub": hub, "gcs": gcs, "proxy": proxied}
services = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retry, "SHARED_PACE", retry.WarningPace())
    monkeypatch.setattr(retry, "TELL_AFTER_S", 0.0)
    with quick_gcs(0.05, lambda: 5.0):
        yield


def hides(text: str) -> None:
    for part in (SECRET, QUOTED, "S3cr", "AKIAPLANTED", "hf_planted"):
        assert part not in text, text


@services
def test_a_connection_that_fails_shows_its_address_without_its_secret(
    service: Callable[[pytest.MonkeyPatch, int], str],
    monkeypatch: pytest.MonkeyPatch,
    closed_port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    uri = service(monkeypatch, closed_port)
    with pytest.raises(TokenizationError) as raised:
        list_source((uri,))
    error = raised.value
    hides(f"{error} {error!r} {error.message} {error.next_step} {error.args}")
    hides("".join(traceback.format_exception(error)))  # as a program that uses the package shows it: with its causes
    hides(failure_report(error, 1).model_dump_json())
    assert uri.rpartition("/")[0] in error.message
    assert caplog.messages, "no call was repeated"
    hides("\n".join(caplog.messages))


@services
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_a_command_shows_no_secret(
    service: Callable[[pytest.MonkeyPatch, int], str],
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    closed_port: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = service(monkeypatch, closed_port)
    arguments = ["--source", uri, "--tokenizer", "bytes", "--output", str(tmp_path / "out"), *flags]
    assert main(["run", *arguments]) == 5
    told = capsys.readouterr()
    hides(told.out + told.err)
    assert "StorageFailed" in told.err


def test_a_dead_endpoint_is_named_whole(
    monkeypatch: pytest.MonkeyPatch, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    uri = s3(monkeypatch, closed_port)
    with pytest.raises(TemporaryError) as raised:
        list_source((uri,))
    for text in (raised.value.message, caplog.messages[0]):
        assert f"no connection to http://***@127.0.0.1:{closed_port}: " in text
        assert "Connection refused" in text


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--source", f"https://{USERINFO}@host/x?sig=S3cr"], id="source"),
        pytest.param(["--source", f"s3://{USERINFO}@bucket/x"], id="bucket of a source"),
        pytest.param(["--source", f"gs://{USERINFO}@bucket/x"], id="bucket of a gs source"),
        pytest.param(["--source", "a", "--output", f"https://{USERINFO}@host/x"], id="output"),
        pytest.param(["--source", "a", "--output", f"gs://{USERINFO}@bucket/x"], id="bucket of an output"),
        pytest.param(["--source", "a", "--ray-address", f"{USERINFO}@host:x"], id="Ray address"),
        pytest.param(["--source", "a", "--ray-address", f"ray://{USERINFO}@host:1"], id="Ray URL"),
        pytest.param(["--source", "a", "--tokenizer", f"https://{USERINFO}@host/tokenizer.json"], id="tokenizer"),
        pytest.param(["--set", f"source.uris=https://{USERINFO}@host"], id="field"),
    ],
)
def test_a_refused_address_shows_no_secret(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text('{"text": "x"}\n')
    for name, value in (("--source", "a"), ("--tokenizer", "bytes"), ("--output", "out")):
        if name not in arguments and not (name == "--source" and "--set" in arguments):
            arguments = [*arguments, name, value]
    assert main(["run", *arguments]) == 2
    told = capsys.readouterr()
    hides(told.out + told.err)
    assert "***" in told.err


ADDRESSES = {
    "no scheme": f"{USERINFO}@127.0.0.1",
    "no port": f"{USERINFO}@hh:",
    "a quote": 'http://AKIAPLANTED:hunter2"S3cr@127.0.0.1:9',
    "a space": "http://AKIAPLANTED:S3cr et@127.0.0.1:9",
    "another scheme": f"ftp://{USERINFO}@x",
    "a slash": f"http://AKIAPLANTED:{SECRET}@127.0.0.1",
    "an impossible port": f"http://{USERINFO}@127.0.0.1:99999",
    "no such port": f"http://{USERINFO}@127.0.0.1:x",
    "an at sign and a slash": "http://AKIAPLANTED:hunter2@S3cr/et@127.0.0.1:1",
    "two at signs": "http://AKIAPLANTED:hunter2@S3cr@127.0.0.1:1",
    "an at sign and a question mark": "http://AKIAPLANTED:hunter2@S3cr?et@127.0.0.1:1",
    "an at sign and a hash": "http://AKIAPLANTED:hunter2@S3cr#et@127.0.0.1:1",
}
VARIABLES = {
    "AWS_ENDPOINT_URL": "s3://bucket/x",
    "AWS_ENDPOINT_URL_S3": "s3://bucket/x",
    "HF_ENDPOINT": "hf://datasets/org/name/x",
    "STORAGE_EMULATOR_HOST": "gs://bucket/x",
}


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_variable_that_holds_no_address_is_named_without_its_secret(
    address: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, address)
    with pytest.raises(SpecError, match=rf"StorageNotUsable: {variable} is '.*\*\*\*@.*': expected http") as raised:
        list_source((VARIABLES[variable],))
    hides("".join(traceback.format_exception(raised.value)))


@pytest.mark.parametrize("address", ["u:hunter2@hh", "hunter2@hh", "u:hunter2@127.0.0.1:9", "http://u:S3cr@hh"])
def test_a_ray_address_with_a_secret_is_refused_without_it(address: str) -> None:
    with pytest.raises(SpecError, match=r"the Ray address '.*\*\*\*@") as raised:
        require_reachable(address)
    assert "hunter2" not in str(raised.value)
    assert "S3cr" not in str(raised.value)


def test_an_endpoint_of_the_hub_that_is_none_is_told_before_its_library_fails() -> None:
    """When it is imported, that parses the address."""
    told = subprocess.run(
        [TOKJOB, "plan", "--source", "hf://datasets/a/b", "--tokenizer", "bytes", "--output", "o"],
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:99999"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 2
    assert "StorageNotUsable: HF_ENDPOINT is 'http://127.0.0.1:99999'" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_warning_shows_no_secret() -> None:
    hides(Warned(f"cannot reach http://{USERINFO}@host").message)


def test_a_foreign_error_is_reported_without_its_secret() -> None:
    error = RuntimeError(f"http://{USERINFO}@host")
    hides(failure_report(error, 1).message)

    class Local(Exception):
        """It cannot be pickled."""

    hides(str(portable(Local(f"http://{USERINFO}@host"))))


def test_reports_that_do_not_arrive_are_told_without_secrets() -> None:
    class Away:
        def report_progress(self, progress: object, *, is_last: bool = False) -> None:
            raise TemporaryError("ApiServerAway", f"https://{USERINFO}@api: away")

    told: list[str] = []
    reporter = Reporter(Away(), 1, told.append)
    reporter(Resumed(1, ((0, 1),), 2, 0))
    reporter(Progress(1, 2, 1, 2, 1, 1, 0, 1, 0, None, None))
    reporter.report()
    assert told
    hides("".join(told))


def test_a_bug_and_a_library_that_logs_show_no_secret_on_standard_error(tmp_path: Path) -> None:
    script = (
        "import logging, sys\n"
        "from tokenization_worker.cli import dispatch\n"
        "def fail():\n"
        f"    logging.getLogger('urllib3').warning('retrying %s', 'http://{USERINFO}@host/x')\n"
        f"    raise RuntimeError('http://{USERINFO}@host/x')\n"
        "dispatch._open_outputs()\n"
        "sys.exit(dispatch._guarded(fail, resumes=False))\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert "retrying http://***@host/x" in done.stderr
    lines = [line for line in done.stderr.splitlines() if "raise RuntimeError" not in line]  # the script's own text
    hides("\n".join(lines))
