"""What a driver tells its checkpoint: how far it is, also after a restart; and that nobody waits for the API server."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tokenization_worker.api.checkpoint import CheckpointProgress, report_interval_s
from tokenization_worker.checkpoint import reporter
from tokenization_worker.checkpoint.reporter import MOST_RUNS, ProgressReport, Reporter, failure_report
from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.events import Progress, Resumed
from tokenization_worker.output.ledger.receipts import RangeReceipt

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
RANGES = 1_000_000
DEADLINE_S = 120


def receipt(range_id: int) -> RangeReceipt:
    return RangeReceipt("p", 0, range_id, (), "", 0, "", 0, 0, 0, 0, "gpt2", "node", 1, 0.0)


def progress(done: int, *, last: int | None = None, ranges: int = RANGES, shards: int | None = None) -> Progress:
    return Progress(
        ranges_done=done,
        ranges=ranges,
        bytes_done=100 * done,
        bytes_total=100 * ranges,
        tokens=1000 * done,
        documents=10 * done,
        quarantined=0,
        source_bytes=300 * done,
        shards_done=0,
        shards=shards,
        receipt=None if last is None else receipt(last),
    )


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def report(self) -> ProgressReport:
        return ProgressReport(3, lambda: self.seconds, lambda: NOON + timedelta(seconds=self.seconds))


def test_what_earlier_starts_have_done_is_part_of_it() -> None:
    clock = Clock()
    report = clock.report()
    report.take(Resumed(5, ((0, 3), (7, 9)), 10, 0))
    report.take(progress(5, ranges=10))
    report.take(progress(6, last=3, ranges=10))
    status = report.status()
    assert (status.attempt, status.ranges_total, status.ranges_completed, status.completed_through) == (3, 10, 6, 4)
    assert [(run.start, run.end) for run in status.completed_ranges or ()] == [(0, 4), (7, 9)]
    assert status.last_range_time == status.last_checkpoint_time == "2026-11-22T12:00:00Z"


def test_a_million_ranges_are_a_small_status() -> None:
    report = Clock().report()
    report.take(Resumed(RANGES // 2, tuple((n, n + 1) for n in range(0, RANGES, 2)), RANGES, 0))
    report.take(progress(RANGES // 2))
    status = report.status()
    assert len(status.completed_ranges or ()) == MOST_RUNS
    assert status.ranges_truncated
    assert status.completed_through == 1
    assert len(status.model_dump_json(by_alias=True)) < 4096


def test_rates_are_of_the_last_minute_and_what_is_left_follows() -> None:
    clock = Clock()
    report = clock.report()
    report.take(progress(0, ranges=100))
    assert report.status().tokens_per_second is None
    for done in range(1, 21):
        clock.seconds += 10
        report.take(progress(done if done < 10 else 10 * (done - 9), ranges=1000))
    status = report.status()
    assert status.tokens_per_second == 1000  # ten ranges in ten seconds, as in the last minute
    assert status.eta_seconds == pytest.approx((1000 - 110) * 1, rel=0.02)


def test_all_is_not_done_before_the_index() -> None:
    report = Clock().report()
    report.take(progress(10, ranges=10, shards=4))
    assert report.status().stage == "Build"
    assert (report.status().percent or 0) < 100


def shuffled(read: int, *, windows_done: int = 0, windows: int | None = None, **shards: int | None) -> Progress:
    """Of ten ranges, with windows."""
    made = progress(read, last=read, ranges=10)
    return replace(made, windows_done=windows_done, windows=windows, **shards)  # type: ignore[arg-type]


def test_a_shuffle_has_a_stage_between_two_others_and_each_counts() -> None:
    report = Clock().report()
    seen = []
    for event in (
        shuffled(5),
        shuffled(10, windows=8),
        shuffled(10, windows_done=4, windows=8),
        shuffled(10, windows_done=8, windows=8, shards=5),
        shuffled(10, windows_done=8, windows=8, shards=5, shards_done=5),
    ):
        report.take(event)
        status = report.status()
        seen.append((status.stage, status.percent, status.windows_scattered, status.windows_total))
    assert seen == [
        ("Tokenize", 39, 0, None),
        ("Scatter", 79, 0, 8),
        ("Scatter", 84, 4, 8),
        ("Build", 89, 8, 8),
        ("Finish", 99, 8, 8),
    ]


def test_a_run_without_a_shuffle_has_no_windows() -> None:
    report = Clock().report()
    report.take(progress(10, ranges=10, shards=4))
    status = report.status()
    assert (status.windows_scattered, status.windows_total) == (None, None)


def test_what_is_left_to_scatter_and_to_build_follows_from_the_last_minute() -> None:
    clock = Clock()
    report = clock.report()
    report.take(shuffled(10, windows=20))
    assert report.status().eta_seconds is None, "nothing is scattered yet"
    for done in range(1, 11):
        clock.seconds += 10
        report.take(shuffled(10, windows_done=done, windows=20))
    status = report.status()
    assert status.eta_seconds == 10 * 10 + 20 * 10, "as many shards as windows, until they are known"
    assert status.tokens_per_second is None, "it reads no source"
    for done in range(8):
        clock.seconds += 20
        report.take(shuffled(10, windows_done=20, windows=20, shards=10, shards_done=done))
    assert report.status().eta_seconds == 3 * 20


class Recipient:
    """Takes reports; while it is away, it takes none."""

    def __init__(self) -> None:
        self.reports: list[CheckpointProgress] = []
        self.is_away = False
        self.tries = threading.Semaphore(0)

    def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
        self.tries.release()
        if self.is_away and not is_last:
            raise TemporaryError("ApiServerAway", "nobody there")
        self.reports.append(progress)

    def wait(self, tries: int) -> None:
        for _ in range(tries):
            assert self.tries.acquire(timeout=DEADLINE_S)


@pytest.fixture
def recipient(monkeypatch: pytest.MonkeyPatch) -> Recipient:
    monkeypatch.setattr(reporter, "report_interval_s", lambda lasted_s: 0.0)
    monkeypatch.setattr(reporter, "HEARTBEAT_S", 0.01)
    return Recipient()


def test_a_report_comes_also_when_nothing_happens(recipient: Recipient) -> None:
    with Reporter(recipient, 1, pytest.fail) as watch:
        watch(progress(1, last=0, ranges=4))
        recipient.wait(3)


def test_nothing_is_reported_before_there_is_something_to_say(recipient: Recipient) -> None:
    with Reporter(recipient, 2, pytest.fail) as watch:
        watch.report()
        assert recipient.reports == [], "it would wipe what an earlier attempt has said"
        watch(progress(1, last=0, ranges=4))
        watch.report()
    assert recipient.reports[-1].ranges_total == 4


def test_a_run_goes_on_while_the_api_server_is_away_and_says_so_once(recipient: Recipient) -> None:
    told: list[str] = []
    recipient.is_away = True
    with Reporter(recipient, 1, told.append) as watch:
        watch(progress(1, last=0, ranges=4))
        recipient.wait(3)
        recipient.is_away = False
        recipient.wait(2)
        last = watch.finish()
    assert told == ["cannot report progress; the run continues: nobody there"]
    assert recipient.reports[-1].ranges_completed == 1
    assert (last.percent, last.eta_seconds) == (100, 0)


def test_a_driver_that_finds_the_run_complete_keeps_the_counts_of_its_attempt(recipient: Recipient) -> None:
    """The head was lost between the index and the report of it, and a second driver has nothing to do."""
    earlier = CheckpointProgress(attempt=2, ranges_total=4, ranges_completed=4, tokens=99, percent=98)
    with Reporter(recipient, 2, pytest.fail, earlier) as reporter:
        last = reporter.finish()
    assert (last.ranges_total, last.ranges_completed, last.tokens) == (4, 4, 99)
    assert (last.attempt, last.percent, last.stage) == (2, 100, "Finish")
    with Reporter(recipient, 3, pytest.fail, earlier) as reporter:
        assert reporter.finish().ranges_completed is None, "another attempt has other counts"


def test_a_failure_is_the_last_report(recipient: Recipient) -> None:
    with Reporter(recipient, 2, pytest.fail) as watch:
        watch(progress(1, last=0, ranges=4))
        watch.fail(DataError("QuarantineExceeded", "3 of 9", next_step="raise it"))
    failure = recipient.reports[-1].failure
    assert failure is not None
    assert (failure.attempt, failure.exit_code, failure.reason) == (2, 4, "QuarantineExceeded")
    assert (failure.message, failure.next_step) == ("3 of 9", "raise it")
    assert recipient.reports[-1].ranges_completed == 1


def test_what_is_no_error_of_ours_is_a_bug() -> None:
    report = failure_report(KeyError("x"), 1)
    assert (report.exit_code, report.reason, report.message) == (1, "Bug", "KeyError: 'x'")


@pytest.mark.parametrize(("lasted_s", "pause_s"), [(0, 15), (300, 15), (600, 30), (1200, 60), (10**5, 60)])
def test_a_long_run_reports_less_often_and_each_minute_at_least(lasted_s: float, pause_s: float) -> None:
    assert report_interval_s(lasted_s) == pause_s


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_run_on_which_nothing_happens_is_heard_of_each_minute(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    waits: list[float] = []

    class Passing:
        """An event that nobody sets, and for which the time passes at once; twenty waits long."""

        def wait(self, timeout: float) -> None:
            waits.append(timeout)

        def is_set(self) -> bool:
            return len(waits) >= 20

        def clear(self) -> None:
            """Nothing was set."""

    class Nobody:
        def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
            """Hear of it."""

    monkeypatch.setattr(reporter, "report_interval_s", lambda lasted_s: 45.0)
    told = Reporter(Nobody(), 1, lambda words: None)
    told._changed = told._ended = Passing()  # type: ignore[assignment]
    if has_begun:
        told._report.take(progress(0, ranges=4))
    told._run()
    assert waits[0] == 60
    pauses, patience = waits[1::2], waits[2::2]
    assert set(pauses) == {45.0 if has_begun else 0.0}, "no pause after nothing was told: the first numbers would wait"
    assert {pause + more for pause, more in zip(pauses, patience, strict=False)} == {60.0}
