"""The progress of running ranges: what workers report, what it adds up to, and what a line shows of it."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.corpus import CorpusWriter, whole_modules
from support.engine.inline import InlineExecutor
from support.ledgers import RANGES, ledger_of_ranges, plan_of_small_files, receipt
from support.runs import make_job
from tokenization_worker.api.data import DType
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.cli.numbers import clock_time
from tokenization_worker.cli.progress import share_line
from tokenization_worker.cli.run_progress import Column, RunProgress, fit
from tokenization_worker.engine import dispatch, local, task_progress
from tokenization_worker.engine.dispatch import Ticks
from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.local import LocalExecutor
from tokenization_worker.engine.ray.task_progress import RayAdvances
from tokenization_worker.engine.task import Done
from tokenization_worker.engine.task_progress import Advance, EverySecond, stored_bytes_done
from tokenization_worker.events import (
    Advanced,
    Committing,
    Event,
    Finished,
    Planned,
    Preparing,
    Progress,
    WaitingForWorkers,
    Warned,
)
from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.progress import ProgressSums
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.schedule import TokenizeSchedule
from tokenization_worker.run.run import Options, run_job

TEXT_BYTES = 6 << 20


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


# --- what a worker tells


def test_a_worker_tells_at_most_once_a_second() -> None:
    clock, told = Clock(), list[Advance]()
    on_advance = EverySecond(told.append, clock)
    for batch in range(1, 40):  # five seconds
        clock.now_s += 0.125
        on_advance(batch * 10, batch)
    assert [item.tokens for item in told] == [8, 16, 24, 32]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    corpus = CorpusWriter(tmp_path / "source")
    for _ in range(2):
        corpus.jsonl(whole_modules(TEXT_BYTES))
    return corpus.finish().folder


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers tell after each batch, and the driver after each word of theirs."""
    monkeypatch.setattr(task_progress, "INTERVAL_S", 0.0)
    monkeypatch.setattr(dispatch, "INTERVAL_S", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("fork", [True, False], ids=["fork", "spawn"])
def test_the_bar_moves_within_ranges_and_never_beyond_the_end(
    fork: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fork:  # a new interpreter has its own second
        monkeypatch.setattr(TokenizeTask, "run", _not_here)
        monkeypatch.setattr(local, "_serve", _serve_at_once)
    events: list[Event] = []
    run_job(
        make_job(source, tmp_path / "out", tokenizer={"name": "bytes"}, rangeBytes="1Gi"),
        options=Options(processes=2),
        executor=lambda prepared, context: LocalExecutor(2, fork=fork),
        on_progress=events.append,
    )
    advanced = [event for event in events if isinstance(event, Advanced)]
    borders = {event.bytes_done for event in events if isinstance(event, Progress)}
    total = max(borders)
    within = [event for event in advanced if event.bytes_done not in borders]
    assert within, "ranges have many batches"
    assert all(event.bytes_done <= event.bytes_total == total for event in advanced)
    done = [event.bytes_done for event in advanced]
    back = [before - after for before, after in pairwise(done)]
    assert max(back) < total / 100, "until a range is done, a sample says what its bytes are"
    tokens = [event.tokens for event in advanced]
    assert tokens == sorted(tokens)
    assert tokens[-1] > tokens[0] == 0


class Telling(InlineExecutor):
    """Keeps all that its tasks report, and their receipts."""

    def __init__(self) -> None:
        super().__init__(lambda task: None, 1)
        self.ranges: list[tuple[list[Advance], int]] = []

    def _run(self, task: Any) -> Done:
        told: list[Advance] = []
        receipt = task.run(self._state, lambda source_bytes, tokens: told.append(Advance(source_bytes, tokens)))
        if isinstance(receipt, RangeReceipt):
            self.ranges.append((told, receipt.source_bytes))
        return Done(task, receipt, "here")


def told_of(folder: Path, output: Path, **fields: Any) -> list[tuple[list[Advance], int]]:
    """What each range of a source tells, and its source bytes; with one token for each byte and separator."""
    executor = Telling()
    separated = {"format": "Text", "documentSeparator": "\n"}
    job = make_job(folder, output, source=separated, tokenizer={"name": "bytes"}, rangeBytes="1Gi", **fields)
    run_job(job, executor=lambda prepared, context: executor)
    return executor.ranges


def test_bytes_that_are_read_count_when_their_tokens_are_there(tmp_path: Path) -> None:
    """A first document that takes a minute to encode was shown as done all the while."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"a" * (5 << 20) + b"\n" + b"another one\n" * 400_000)
    for number in range(30):
        (folder / f"b{number:02d}.txt").write_bytes(b"a small file\n" * 10_000)
    steps = 0
    for told, source_bytes in told_of(folder, tmp_path / "out"):
        done = [item.source_bytes for item in told] or [0]  # no document begins in the middle of a large one
        assert done[1:] == [item.tokens for item in told][1:]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, source_bytes)
        steps += len(set(done))
    assert steps > 5


def test_what_is_never_encoded_counts_when_it_is_read(tmp_path: Path) -> None:
    """Unusable documents, and those of a file that turns out damaged behind them."""
    folder = tmp_path / "src"
    folder.mkdir()
    bad = b"\xff" * (4 << 20) + b"\n"
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"a good one\n" * 1000 + bad * 5)[:-4])
    (folder / "b.txt").write_bytes(b"\xff\n" * 25_000)
    (folder / "c.txt").write_bytes(b"good\n")
    ranges = told_of(folder, tmp_path / "out", maxCorruptFiles=1, maxQuarantined="100%")
    assert all(told[-1].source_bytes == source_bytes for told, source_bytes in ranges)
    before_last = [{item.source_bytes for item in told if item.tokens == told[-2].tokens} for told, _ in ranges]
    assert max(map(len, before_last)) > 1


def _serve_at_once(*arguments: Any) -> None:
    """As a worker that was started from scratch runs it."""
    from tokenization_worker.engine.local import _serve

    task_progress.INTERVAL_S = 0.0
    _serve(*arguments)


def _not_here(*arguments: Any) -> None:
    raise AssertionError("the task ran in the driver")


def test_a_worker_does_not_wait_for_a_driver_that_does_not_listen() -> None:
    """A driver may be busy for minutes, with a store that does not answer."""
    ours, theirs = local.Pipe()
    with ours, theirs:
        for number in range(100_000):
            local._send_advance(theirs, Advance(number, number))
        assert ours.recv() == Advance(0, 0)


def test_a_driver_that_is_gone_is_no_error_of_the_task() -> None:
    ours, theirs = local.Pipe()
    ours.close()
    with theirs:
        local._send_advance(theirs, Advance(1, 1))


# --- what it adds up to


class Fixed(InlineExecutor):
    """An executor that knows what a test says it knows."""

    def __init__(self) -> None:
        super().__init__(lambda task: None, 2)
        self.state = UnderWay(2, 2)

    def under_way(self) -> UnderWay:
        return self.state


class Run:
    """A reporter with ranges of 10 stored bytes, each of 20 source bytes and 7 tokens; a tick is a second."""

    def __init__(self, tmp_path: Path, *, done: int = 0, expansion: float = 0.0) -> None:
        plan = plan_of_small_files()
        data = resolve_data(make_job(tmp_path / "src", tmp_path / "out", output={"shards": {"tokens": 10**9}}))
        context = RunContext(data, "plan", 0, "reference", DType.UINT16, 1, "")
        self.ledger = ledger_of_ranges(receipt(range_id) for range_id in range(done))
        self.schedule = TokenizeSchedule(plan, context, self.ledger, frozenset())
        self.executor, self.clock = Fixed(), Clock()
        self.told: list[Event] = []
        self._progress = ProgressSums(plan, self.schedule, self.ledger, expansion)
        self._progress.after(None)
        self.ticks = Ticks(self._progress.with_parts, self.executor, self.told.append, self.clock)
        self._task = TokenizeTask(context, 0, plan.slices(0), 10)

    def tick(self, parts: dict[int, Advance], workers: int = 2, wanted: int = 2) -> Event:
        tasks = tuple((replace(self._task, range_id=number), item) for number, item in parts.items())
        self.executor.state = UnderWay(workers, wanted, tasks)
        self.clock.now_s += 1
        self.ticks.tick()
        return self.told[-1]


def test_parts_of_ranges_are_added_to_those_that_are_done(tmp_path: Path) -> None:
    run = Run(tmp_path, done=4)
    told = run.tick({4: Advance(10, 3), 6: Advance(4, 1)})
    assert told == Advanced(
        bytes_done=40 + 5 + 2, bytes_total=10 * RANGES, tokens=28 + 4, source_bytes=80 + 14, workers=2
    )


def test_a_part_is_withdrawn_when_its_worker_is_lost(tmp_path: Path) -> None:
    run = Run(tmp_path, done=4)
    run.tick({4: Advance(10, 3)})
    told = run.tick({})
    assert isinstance(told, Advanced)
    assert (told.bytes_done, told.tokens) == (40, 28)


def test_a_range_that_is_done_again_is_counted_once(tmp_path: Path) -> None:
    """Its segment was lost, and its receipt is there."""
    run = Run(tmp_path, done=RANGES)
    told = run.tick({3: Advance(19, 6), 7: Advance(2, 1)})
    assert isinstance(told, Advanced)
    assert (told.bytes_done, told.tokens) == (told.bytes_total, 7 * RANGES)


@pytest.mark.parametrize("told", [10**9, 20, 0], ids=["far more than it has", "all of it", "nothing"])
def test_a_range_is_not_done_before_its_receipt(told: int, tmp_path: Path) -> None:
    run = Run(tmp_path, done=RANGES - 2)
    event = run.tick({RANGES - 2: Advance(told, 1), RANGES - 1: Advance(told, 1)})
    assert isinstance(event, Advanced)
    assert 0 <= event.bytes_done - 10 * (RANGES - 2) <= 18
    assert event.bytes_done < event.bytes_total


@pytest.mark.parametrize(("expansion", "expected"), [(2.0, 5), (4.0, 2), (0.0, 0)])
def test_before_a_range_is_done_the_plan_says_how_much_a_stored_byte_is(
    expansion: float, expected: int, tmp_path: Path
) -> None:
    run = Run(tmp_path, expansion=expansion)
    event = run.tick({0: Advance(10, 3)})
    assert isinstance(event, Advanced)
    assert event.bytes_done == expected
    assert stored_bytes_done(Advance(10, 3), 10, expansion) == expected


def test_how_far_it_is_is_told_each_second_whether_or_not_it_moves(tmp_path: Path) -> None:
    run = Run(tmp_path)
    del run.told[:]
    for _ in range(80):
        run.clock.now_s += 0.125
        run.ticks.tick()
    assert len(run.told) == 10


def test_a_run_without_workers_says_how_many_it_waits_for(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for workers, wanted in ((0, 0), (0, 4), (0, 4), (0, 6), (1, 6), (0, 6)):
        run.tick({}, workers, wanted)
    assert [event.wanted for event in run.told if isinstance(event, WaitingForWorkers)] == [4, 6]
    assert [event.workers for event in run.told if isinstance(event, Advanced)] == [0, 0, 0, 0, 1, 0]


# --- on Ray


class Handle:
    """An actor that answers when a test lets it."""

    def __init__(self) -> None:
        self.questions: list[Future[Advance | None]] = []
        self.advance = self
        self.groups: list[str] = []

    def options(self, *, concurrency_group: str) -> Handle:
        self.groups.append(concurrency_group)
        return self

    def remote(self) -> Handle:
        self.questions.append(Future())
        return self

    def future(self) -> Future[Advance | None]:
        return self.questions[-1]


class FakeWorker:
    def __init__(self) -> None:
        self.handle = Handle()


def test_a_ray_worker_is_asked_again_only_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(10)
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    worker, task = FakeWorker(), object()
    advances: Any = RayAdvances()
    for _ in range(3):
        advances.ask({worker: task})
    assert len(worker.handle.questions) == 1
    assert list(advances.of({worker: task})) == []
    worker.handle.questions[0].set_result(Advance(5, 2))
    advances.ask({worker: task})
    assert list(advances.of({worker: task})) == [(task, Advance(5, 2))]
    assert len(worker.handle.questions) == 2
    assert set(worker.handle.groups) == {"advances"}


def test_what_a_ray_worker_said_of_its_last_task_counts_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(10)
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    worker, first, second = FakeWorker(), object(), object()
    advances: Any = RayAdvances()
    advances.ask({worker: first})
    worker.handle.questions[0].set_result(Advance(5, 2))  # too late: it has another task
    advances.ask({worker: second})
    assert list(advances.of({worker: second})) == []
    worker.handle.questions[1].set_exception(RuntimeError("the worker is gone"))
    advances.ask({})
    assert list(advances.of({})) == []


# --- what is shown


def progress(bytes_done: int, *, tokens: int = 0, quarantined: int = 0) -> Progress:
    return Progress(1, 9, bytes_done, 1000, tokens, 1, quarantined, 4 * bytes_done, 1, None, None)


def advanced(bytes_done: int, *, workers: int = 2) -> Advanced:
    return Advanced(bytes_done, 1000, 10 * bytes_done, 4 * bytes_done, workers)


def texts(shown: RunProgress, at_s: float) -> str:
    return " ".join(column.text.strip() for column in shown.columns(at_s))


def test_time_left_and_elapsed_tick_within_a_range() -> None:
    shown = RunProgress()
    shown.take(progress(0), 10.0)
    for second in range(1, 9):
        shown.take(advanced(20 * second), 10.0 + second)
    assert texts(shown, 18.0) == "16% 1,600 tokens 200/s 80 B/s 0:42 left 0:18"
    shown.take(advanced(180), 19.0)
    assert texts(shown, 19.0) == "18% 1,800 tokens 200/s 80 B/s 0:41 left 0:19"


def test_in_the_first_seconds_no_time_left_is_guessed() -> None:
    shown = RunProgress()
    shown.take(progress(0), 10.0)
    shown.take(advanced(1), 12.9)
    assert "left" not in texts(shown, 12.9)
    shown.take(advanced(2), 13.0)
    assert "left" in texts(shown, 13.0)


def test_waiting_for_workers_is_no_time_of_the_work() -> None:
    shown = RunProgress()
    shown.take(progress(0), 0.0)
    for second in range(60):
        shown.take(advanced(0, workers=0), float(second))
    assert texts(shown, 60.0) == "0% waiting for workers 1:00"
    for second in range(60, 65):
        shown.take(advanced(100 * (second - 59), workers=1), float(second))
    assert "0:05 left" in texts(shown, 64.0)


def test_the_time_left_follows_a_run_that_gets_slower() -> None:
    shown = RunProgress()
    shown.take(progress(0), 0.0)
    for second in range(1, 11):
        shown.take(advanced(50 * second), float(second))
    assert shown.left_s() == pytest.approx(10)
    for second in range(11, 51):
        shown.take(advanced(500 + (second - 10)), float(second))
    assert shown.left_s() == pytest.approx(460, rel=0.05)


def test_no_time_left_is_shown_where_all_should_be_done_and_nothing_moves() -> None:
    shown = RunProgress()
    shown.take(progress(0), 0.0)
    for second in range(1, 11):
        shown.take(advanced(97 * second), float(second))
    assert "0:00 left" in texts(shown, 10.0), "0.3 s"
    for second in range(11, 60):
        shown.take(advanced(970), float(second))
        assert "left" not in texts(shown, float(second))
    shown.take(advanced(971), 60.0)
    assert "left" in texts(shown, 60.0)


def test_a_time_left_that_is_longer_than_a_pause_goes_on_to_be_shown() -> None:
    shown = RunProgress()
    shown.take(progress(0), 0.0)
    for second in range(1, 60):
        shown.take(advanced(50 * (second // 5)), float(second))
        assert (second < 5) == ("left" not in texts(shown, float(second)))


def test_the_end_of_a_range_does_not_move_the_bar_back() -> None:
    """A receipt says nothing of the parts of other ranges, and the next second does."""
    shown = RunProgress()
    shown.take(advanced(500), 1.0)
    shown.take(progress(300, tokens=3000), 1.1)
    assert shown.bytes_done == 500
    shown.take(advanced(310), 2.0)  # a worker was lost: its part is withdrawn
    assert shown.bytes_done == 310
    assert shown.left_s() is None


COLUMNS = [Column(0, " 68%"), Column(4, "53.9M tokens"), Column(6, "74M/s"), Column(5, "312 MB/s")]
COLUMNS += [Column(2, "2 quarantined"), Column(1, "1:12 left"), Column(3, "2:30")]


def test_a_line_is_as_long_as_the_terminal_at_most() -> None:
    for width in range(200):
        text = fit(COLUMNS, width)
        assert len(text) <= width
        left_out = [column.rank for column in COLUMNS if column.text not in text]
        kept = [column.rank for column in COLUMNS if column.text in text]
        assert max(kept, default=-1) < min(left_out, default=99)
        bar, room = share_line(width)
        assert 11 + bar + 1 + room <= max(width, 16)
        assert bar >= 20 or width < 80


def test_at_80_columns_the_bar_keeps_20_and_the_time_left_is_there() -> None:
    bar, room = share_line(80)
    text = fit(COLUMNS, room)
    assert bar == 20
    assert "68%" in text
    assert "left" in text
    assert "quarantined" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (360_000, "4.2 days")],
)
def test_a_time_that_ticks(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


# --- what is said at once


def test_each_stage_of_a_run_is_said_when_it_begins(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    seen_at_listing: list[list[type]] = []
    from tokenization_worker.planning.groups import files as planning

    list_source = planning.list_source

    def listing(*arguments: Any) -> Any:
        seen_at_listing.append([type(event) for event in events])
        return list_source(*arguments)

    monkeypatch.setattr(planning, "list_source", listing)
    job = make_job(source, tmp_path / "out", tokenizer={"name": "bytes"})
    run_job(job, options=Options(processes=1), on_progress=events.append)
    assert events[0] == Preparing("bytes", (str(source),))
    assert seen_at_listing == [[Preparing]]
    kinds = [type(event) for event in events if not isinstance(event, Warned | Progress | Advanced | Finished)]
    assert kinds == [Preparing, Planned, Committing]


Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    yield lambda: capsys.readouterr().out.splitlines()


def test_plain_lines_come_every_ten_seconds_also_within_a_range(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenization_worker.cli import progress as display_module

    clock = Clock()
    monkeypatch.setattr(display_module.time, "monotonic", clock)
    display = display_module.PlainDisplay()
    display(Preparing("gpt2", ("data/*.jsonl", "more", "and more")))
    display(WaitingForWorkers(4))
    display(progress(0))
    for second in range(1, 26):
        clock.now_s += 1
        display(advanced(20 * second))
    assert lines() == [
        "prepare    loading gpt2, listing data/*.jsonl and 2 more patterns",
        "workers    waiting: 0 of 4 have started",
        "tokenize    20%  2,000 tokens  200/s  80 B/s  0:40 left  0:10  build 1/? shards",
        "tokenize    40%  4,000 tokens  200/s  80 B/s  0:30 left  0:20  build 1/? shards",
    ]
