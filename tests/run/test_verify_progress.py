"""How far `verify` is within a shard or a file, and the line that says so."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from support.corpus import CorpusWriter, gzip_members, json_lines, whole_modules
from support.runs import make_job
from tokenization_worker.cli import verify_command
from tokenization_worker.cli.pace import Pace
from tokenization_worker.cli.verify_command import verify_line
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.verification import advance, workers
from tokenization_worker.verification.advance import Advances, EverySecond, send
from tokenization_worker.verification.report import VerifyProgress
from tokenization_worker.verification.shards import file_sums
from tokenization_worker.verification.verify import verify

TEXT_BYTES = 5 << 20
DEADLINE_S = 120


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard; a plain file, a gzip file and a Parquet file."""
    folder = tmp_path_factory.mktemp("verify")
    corpus = CorpusWriter(folder / "source")
    texts = whole_modules(TEXT_BYTES)
    corpus.jsonl(texts)
    corpus.parquet(texts[:20], rows_per_group=4)
    corpus.finish()
    (corpus.folder / "packed.jsonl.gz").write_bytes(gzip_members(json_lines(texts)))
    job = make_job(corpus.folder, folder / "out", tokenizer={"name": "bytes"})
    run_job(job, options=Options(processes=1))
    return folder / "out"


def send_and_wait(writer: Connection, number: int, size: int) -> None:
    """Go on when this is read: a driver that gets no core meanwhile would learn only the last of what was sent."""
    send(writer, number, size)
    unread = bytearray(4)
    deadline = time.monotonic() + DEADLINE_S
    while fcntl.ioctl(writer.fileno(), termios.FIONREAD, unread) == 0 and any(unread):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_moves_within_a_shard_and_a_file(
    processes: int, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "INTERVAL_S", 0.0)
    monkeypatch.setattr(workers, "INTERVAL_S", 0.005)  # so long the driver waits between two looks
    monkeypatch.setattr(workers, "send", send_and_wait)
    monkeypatch.setattr(file_sums, "_CHUNK_BYTES", 1 << 20)
    seen: list[VerifyProgress] = []
    report = verify(str(output), processes=processes, on_progress=seen.append)
    assert report.is_clean
    done = [event.done_bytes for event in seen]
    borders = {0, report.shard_bytes, done[-1]}
    for phase in ("shards", "source"):
        within = {event.done_bytes for event in seen if event.phase == phase} - borders
        assert len(within) >= 3, phase
    assert done == sorted(done)
    assert done[-1] == seen[-1].total_bytes == report.shard_bytes + report.source_bytes
    assert all(event.done_bytes <= event.total_bytes for event in seen)


def test_a_file_that_is_read_again_counts_once(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenization_worker.verification.files import check

    monkeypatch.setattr(advance, "INTERVAL_S", 0.0)

    def suspect(*arguments: object) -> None:
        check._compare_all(*arguments)  # type: ignore[arg-type]
        raise check.Suspicion

    monkeypatch.setattr(check, "compare_sample", suspect)
    seen: list[VerifyProgress] = []
    verify(str(output), processes=1, on_progress=seen.append)
    assert max(event.done_bytes for event in seen) == seen[-1].total_bytes


def test_a_check_tells_at_most_once_a_second() -> None:
    now, told = [100.0], list[int]()
    on_advance = EverySecond(told.append, lambda: now[0])
    for size in range(1, 40):
        now[0] += 0.125
        on_advance(size)
    assert told == [8, 16, 24, 32]


def test_a_full_pipe_makes_nobody_wait_and_loses_only_messages() -> None:
    advances = Advances()
    for size in range(100_000):
        send(advances.writer, 3, size)
    send(advances.writer, 4, 1)
    told = advances.read({3, 4})
    assert set(told) == {3}
    send(advances.writer, 3, 7)
    send(advances.writer, 4, 8)
    assert advances.read({4}) == {4: 8}
    advances.close()


def test_a_check_whose_parent_is_gone_is_not_disturbed() -> None:
    advances = Advances()
    writer = os.dup(advances.writer.fileno())
    advances._reader.close()
    send(advances.writer, 1, 1)
    os.close(writer)


def pace_of(*done: int) -> Pace:
    pace = Pace()
    for second, size in enumerate(done):
        pace.take(float(second), size)
    return pace


def test_an_interrupted_check_leaves_the_terminals_line_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message that follows must not stand behind the bar."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(verify_command, "verify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify_command.main(["out"])
    assert capsys.readouterr().err.endswith("\r\033[K")


def test_the_line_of_verify_shows_a_bar_speed_and_the_time_left() -> None:
    progress = VerifyProgress("source", 500_000_000, 1_000_000_000, 2)
    pace = pace_of(0, 100_000_000, 200_000_000, 300_000_000, 400_000_000, 500_000_000)
    line = verify_line(progress, pace, 5.0, 80, bar=True)
    assert line == "verify     ##########..........  50%  100 MB/s  2 findings  0:05 left  0:05"
    assert "source" in verify_line(progress, pace, 5.0, 200, bar=False)


def test_the_line_of_verify_is_shorter_than_the_terminal() -> None:
    progress = VerifyProgress("source", 500_000_000, 1_000_000_000, 2)
    pace = pace_of(0, 100, 200, 300, 400)
    for width in range(1, 160):
        assert len(verify_line(progress, pace, 5.0, width, bar=True)) < width
    assert " 50%" in verify_line(progress, pace, 5.0, 40, bar=True)
