"""A driver's log is kept at the output, bounded and without secrets; it is no part of the dataset, and fails no run."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.command_line import MANIFEST, Bench
from support.engine.inline import inline
from support.runs import files_below
from support.stores.bucket_job import JOB
from support.stores.gcs_fake import FakeGcs
from tokenization_worker.api.checkpoint import CheckpointProgress, TokenizationCheckpoint, make_attempt_spec
from tokenization_worker.api.checkpoint import make_run_spec as run_of
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli import drive_command
from tokenization_worker.cli.kept_log import KeptLog
from tokenization_worker.cli.taken_output import taking_output
from tokenization_worker.errors import DataError, SpecError, TokenizationError
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.output import layout
from tokenization_worker.output.driver_log import DriverLog, read_log, write_log
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.verify import dataset_digest

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def job_of(bench: Bench, more: str = "") -> TokenizationJob:
    text = MANIFEST.replace("[src]", f"[{bench.source}]").replace("uri: out", f"uri: {bench.output}")
    return TokenizationJob.from_yaml(text + more)


def log_of(*pieces: str, most_bytes: int = 1 << 20) -> DriverLog:
    log = DriverLog(lambda: NOON, most_bytes)
    for piece in pieces:
        log.write(piece)
    return log


# --- what is taken down


def test_lines_have_their_time() -> None:
    log = log_of("plan  3 files\nworkers ", "waiting\n", "unended")
    assert log.content().decode().splitlines() == [
        "2026-11-22T12:00:00Z plan  3 files",
        "2026-11-22T12:00:00Z workers waiting",
        "2026-11-22T12:00:00Z unended",
    ]


def test_a_long_log_keeps_its_first_and_last_lines_and_says_how_much_is_missing() -> None:
    log = log_of(*(f"line {number:05d}\n" for number in range(10_000)), most_bytes=2000)
    content = log.content().decode()
    lines = content.splitlines()
    assert lines[0].endswith("line 00000")
    assert lines[-1].endswith("line 09999")
    [gap] = [line for line in lines if line.startswith("...")]
    missing = 10_000 - (len(lines) - 1)
    assert gap == f"... {missing:,} lines ({missing * 32:,} bytes) are left out here ..."
    assert len(content) < 2100


def test_a_line_without_an_end_is_bounded_too() -> None:
    log = log_of(*("x" * 1000 for _ in range(5000)), most_bytes=200_000)
    assert len(log.content()) < 201_000
    assert len(log_of("y" * 10_000_000 + "\n").content()) < 20_000


def test_a_secret_that_arrives_in_two_pieces_is_hidden() -> None:
    content = log_of("reading https://user:hun", "ter2@host/x\n").content()
    assert b"hunter2" not in content
    assert b"https://***@host/x" in content


@pytest.mark.parametrize("before", [16_370, 255_990, 262_130])
@pytest.mark.parametrize("size", [1000, 10**6])
def test_a_secret_in_a_long_line_is_hidden_also_where_the_line_is_cut(before: int, size: int) -> None:
    line = "x" * before + " https://user:hunter2hunter2@host/x" + "y" * 300_000
    content = log_of(*(line[at : at + size] for at in range(0, len(line), size)), "\n").content()
    assert b"hunter" not in content
    assert b"user" not in content
    assert b"letters are left out" in content
    assert len(content) < 17_000


def test_an_unended_line_of_secrets_alone_shows_none_at_its_end() -> None:
    line = "https://user:hunter2@host/ " * 10_000
    assert b"hunter" not in log_of(line).content()


def test_what_is_printed_is_taken_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of()
    with taking_output(log.write):
        print("out")
        print("err", file=sys.stderr)
    print("later")
    assert capsys.readouterr() == ("out\nlater\n", "err\n")
    assert [line.split(" ", 1)[1] for line in log.content().decode().splitlines()] == ["out", "err"]


# --- at the output


def test_a_log_comes_back_and_none_is_replaced(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "out"))
    first = write_log(store, 1, 2, b"first\n")
    assert first == f"{store.uri}/_tokenization/logs/1-2.log.zst"
    second = write_log(store, 1, 2, b"second\n")
    assert second == f"{store.uri}/_tokenization/logs/1-2-2.log.zst"
    assert (read_log(first), read_log(second)) == ("first\n", "second\n")
    assert all(layout.is_own_name(path) for path in files_below(tmp_path / "out"))


def test_a_log_on_a_store_comes_back(fake: FakeGcs) -> None:
    assert read_log(write_log(open_store("gs://bucket/out"), 3, 1, b"words\n")) == "words\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "out/_tokenization/plan", "out/_tokenization/logs/../../1-1.log.zst"])
def test_nothing_else_is_read_as_a_log(name: str) -> None:
    with pytest.raises(DataError, match="not the address of a driver's log"):
        read_log(name)


def test_a_damaged_log_is_said_to_be_damaged(tmp_path: Path) -> None:
    uri = write_log(open_store(str(tmp_path)), 1, 1, b"words\n")
    Path(uri).write_bytes(b"no zstd")
    with pytest.raises(DataError, match="is corrupt"):
        read_log(uri)


def test_a_log_is_no_part_of_the_dataset(bench: Bench) -> None:
    bench.run()
    before = bench.tokjob("verify", "out")
    digest = dataset_digest(str(bench.output))
    write_log(open_store(str(bench.output)), 1, 1, b"words\n")
    assert dataset_digest(str(bench.output)) == digest
    after = bench.tokjob("verify", "out")
    assert (before.code, after.code, after.err) == (0, 0, before.err)
    assert bench.run().already


def test_clean_removes_logs(bench: Bench) -> None:
    bench.stop()
    write_log(open_store(str(bench.output)), 1, 1, b"words\n")
    assert clean_output(str(bench.output), dry_run=False).stays == ()
    assert files_below(bench.output) == set()


# --- best effort


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_store_that_does_not_answer_holds_up_no_end(fake: FakeGcs, caplog: pytest.LogCaptureFixture) -> None:
    answers = threading.Event()
    fake.hold = lambda request: answers.wait(60)
    try:
        assert KeptLog(log_of("words\n"), JOB, 1, 1).write(0.2) is None
    finally:
        answers.set()
    assert "cannot write the driver's log" in caplog.text


def test_a_log_that_cannot_be_written_is_a_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.stop()
    (bench.output / "_tokenization/logs").write_text("in the way")
    assert KeptLog(log_of("words\n"), job_of(bench), 1, 1).write() is None
    assert "cannot write the driver's log to the output" in caplog.text


def test_the_output_of_another_job_gets_no_log(bench: Bench) -> None:
    bench.stop()
    before = files_below(bench.output)
    other = job_of(bench, more='  rerunToken: "other"\n')
    assert KeptLog(log_of("words\n"), other, 1, 1).write() is None
    assert files_below(bench.output) == before
    assert KeptLog(log_of("words\n"), job_of(bench), 1, 1).write() is not None


# --- the driver


@dataclass
class Client:
    """A checkpoint's, in memory."""

    reports: list[CheckpointProgress] = field(default_factory=list)
    committed: list[object] = field(default_factory=list)

    def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
        self.reports.append(progress)

    def commit(self, committed: object, progress: CheckpointProgress) -> None:
        self.reports.append(progress)
        self.committed.append(committed)


@pytest.fixture
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def drive(bench: Bench, monkeypatch: pytest.MonkeyPatch, before: Callable[[Any], None]) -> Client:
    """Run the driver of run 4, attempt 2, on workers of this process."""

    @contextmanager
    def cluster(*_: object) -> Iterator[Any]:
        yield type("Cluster", (), {"count_slots": staticmethod(lambda: 2), "start": staticmethod(inline(before))})

    monkeypatch.setattr(drive_command, "ray_cluster", cluster)
    job, client = job_of(bench), Client()
    checkpoint = TokenizationCheckpoint.model_validate(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationCheckpoint",
            "metadata": {"name": "bench-r4", "namespace": "team"},
            "spec": {
                "run": run_of(job, number=4, job_uid="u").model_dump(mode="json", by_alias=True, exclude_none=True),
                "attempt": make_attempt_spec(job, number=2, image=None, slots=2).model_dump(mode="json", by_alias=True),
            },
        }
    )
    log = DriverLog(lambda: NOON)
    with taking_output(log.write):
        drive_command._drive(client, checkpoint, 2, None, log)  # type: ignore[arg-type]
    return client


@pytest.mark.usefixtures("_signals")
class TestDriver:
    def test_that_finishes_names_a_log_with_its_whole_way(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        client = drive(bench, monkeypatch, lambda task: None)
        uri = client.reports[-1].log_uri
        assert uri == f"{bench.output}/_tokenization/logs/4-2.log.zst"
        text = read_log(uri)
        assert "plan       3 files" in text
        assert "done       " in text
        assert client.committed

    def test_that_fails_names_a_log_that_says_why(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(task: Any) -> None:
            raise SpecError("SourceInvalid", "no text: https://user:hunter2@host/x", next_step="mend")

        reports: list[CheckpointProgress] = []
        monkeypatch.setattr(Client, "report_progress", lambda self, progress, **_: reports.append(progress))
        with pytest.raises(SpecError):
            drive(bench, monkeypatch, fail)
        assert reports[-1].failure is not None
        text = read_log(reports[-1].log_uri or "")
        assert "tokjob: SourceInvalid: no text: https://***@host/x" in text

    def test_that_is_stopped_names_a_log(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        client = drive(bench, monkeypatch, lambda task: os.kill(os.getpid(), signal.SIGTERM))
        assert "stopping after the ranges under way" in read_log(client.reports[-1].log_uri or "")
        assert not client.committed

    def test_that_cannot_keep_its_log_finishes(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> str:
            raise TokenizationError("StorageFailed", "no room")

        monkeypatch.setattr("tokenization_worker.cli.kept_log.write_log", refuse)
        client = drive(bench, monkeypatch, lambda task: None)
        assert client.committed
        assert client.reports[-1].log_uri is None
