"""Reports the progress of a run to its checkpoint, in a thread: the run never waits for the API server.

`ProgressReport` adds the events of a run up, and does no I/O. `Reporter` sends the sum: at most once per
`report_interval_s`, and once per `HEARTBEAT_S` even if nothing happens, so that a slow run differs from a dead one.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self, TypeVar

from tokenization_worker.api.checkpoint import (
    MOST_REPORT_INTERVAL_S,
    CheckpointProgress,
    FailureReport,
    report_interval_s,
)
from tokenization_worker.api.status import RangeRun
from tokenization_worker.api.types.times import time_text
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Advanced, Event, Progress, Resumed
from tokenization_worker.messages.redact import redact
from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.pipelines.decoder_affinity import stretches

HEARTBEAT_S = MOST_REPORT_INTERVAL_S

MOST_RUNS = 64
"""Runs of completed ranges in a status: it stays below 16 KiB at a million ranges."""

_RATE_WINDOW_S = 60.0
_BUILD_SHARE = 0.1
"""Of a run's time that goes into building shards, for the percentage; as much of a shuffle's goes into scattering."""


S = TypeVar("S", bound=tuple[float, *tuple[int, ...]])


class ProgressReport:
    """Takes events, and tells the state of the run. `clock`: seconds; `now`: for the time of the report."""

    def __init__(self, attempt: int, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._attempt = attempt
        self._clock = clock
        self._now = now
        self._done: set[int] = set()
        self._last_range_at: datetime | None = None
        self._last: Progress | None = None
        self._samples: deque[tuple[float, int, int]] = deque()
        self._steps: deque[tuple[float, int]] = deque()
        """Windows and shards that were done, by time: the samples of a stage that reads no source."""

    def take(self, event: Event) -> None:
        match event:
            case Resumed():
                for start, end in event.done:
                    self._done.update(range(start, end))
            case Progress():
                if isinstance(event.receipt, RangeReceipt):
                    self._done.add(event.receipt.range_id)
                if event.receipt is not None:
                    self._last_range_at = self._now()
                self._last = event
                self._sample(event)
                self._sample_steps(event)
            case Advanced():  # what is under way makes the rates smooth; only what is done is counted
                self._sample(event)

    def _sample(self, event: Progress | Advanced) -> None:
        now = self._clock()
        done, tokens = event.bytes_done, event.tokens
        if isinstance(event, Progress) and self._samples:  # of what is under way it says nothing
            done, tokens = max(done, self._samples[-1][1]), max(tokens, self._samples[-1][2])
        self._samples.append((now, done, tokens))
        _forget(self._samples, now)

    def _sample_steps(self, event: Progress) -> None:
        now = self._clock()
        self._steps.append((now, event.windows_done + event.shards_done))
        _forget(self._steps, now)

    def status(self) -> CheckpointProgress:
        """How far the run is now."""
        last = self._last
        now = time_text(self._now())
        if last is None:
            return CheckpointProgress(attempt=self._attempt, last_checkpoint_time=now)
        done = stretches(sorted(self._done))
        stage = _stage_of(last)
        tokens_per_second, eta_seconds = self._rates(last)
        if last.windows != 0 and stage != "Tokenize":
            tokens_per_second, eta_seconds = None, self._eta_of_steps(last)
        return CheckpointProgress(
            attempt=self._attempt,
            stage=stage,
            ranges_total=last.ranges,
            ranges_completed=last.ranges_done,
            completed_through=done[0][1] if done and not done[0][0] else 0,
            completed_ranges=[RangeRun(start=start, end=end) for start, end in done[:MOST_RUNS]],
            ranges_truncated=len(done) > MOST_RUNS,
            windows_scattered=None if last.windows == 0 else last.windows_done,
            windows_total=last.windows or None,
            shards_built=last.shards_done,
            shards_total=last.shards,
            documents=last.documents,
            quarantined=last.quarantined,
            tokens=last.tokens,
            bytes_read=last.bytes_done,
            percent=int(99 * _share_done(last)),
            tokens_per_second=tokens_per_second,
            eta_seconds=eta_seconds,
            last_range_time=None if self._last_range_at is None else time_text(self._last_range_at),
            last_checkpoint_time=now,
        )

    def _rates(self, last: Progress) -> tuple[int | None, int | None]:
        """Tokens per second of the last minute, and seconds left; None before there is something to count."""
        (began, bytes_before, tokens_before), (_, bytes_now, tokens_now) = self._samples[0], self._samples[-1]
        seconds, n_bytes = self._clock() - began, bytes_now - bytes_before
        if seconds <= 0 or n_bytes <= 0:
            return None, None
        left = int((last.bytes_total - bytes_now) * seconds / n_bytes)
        return max(0, int((tokens_now - tokens_before) / seconds)), left

    def _eta_of_steps(self, last: Progress) -> int | None:
        """Seconds until the windows and shards that are left are done. Before shards are known they count as windows:
        a token is written as often by one stage as by the other."""
        (began, steps_before), (_, steps_now) = self._steps[0], self._steps[-1]
        seconds = self._clock() - began
        if last.windows is None or seconds <= 0 or steps_now <= steps_before:
            return None
        shards = last.windows if last.shards is None else last.shards
        return int((last.windows + shards - steps_now) * seconds / (steps_now - steps_before))


def _forget(samples: deque[S], now: float) -> None:
    """Keep the samples of the last minute, which begin with their time, and one before them."""
    while len(samples) > 2 and samples[1][0] < now - _RATE_WINDOW_S:
        samples.popleft()


def _shares(last: Progress) -> tuple[float, float, float]:
    """How much is read, scattered and built, from 0 to 1; without a shuffle nothing is left to scatter."""
    read = last.bytes_done / last.bytes_total if last.bytes_total else 1.0
    scattered = 1.0 if last.windows == 0 else last.windows_done / last.windows if last.windows else 0.0
    built = last.shards_done / last.shards if last.shards else 0.0
    return read, scattered, built


def _stage_of(last: Progress) -> str:
    read, scattered, built = _shares(last)
    if read < 1:
        return "Tokenize"
    if scattered < 1:
        return "Scatter"
    return "Build" if built < 1 else "Finish"


def _share_done(last: Progress) -> float:
    read, scattered, built = _shares(last)
    of_scatter = 0.0 if last.windows == 0 else _BUILD_SHARE
    return (1 - _BUILD_SHARE - of_scatter) * read + of_scatter * scattered + _BUILD_SHARE * built


class Recipient(Protocol):
    def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
        """Raises `TokenizationError` where it cannot be told."""


class Reporter:
    """A watcher of events; leave it as a context manager. `warn` is told once when reports do not arrive.

    `earlier`: what the checkpoint says at the start, perhaps of an earlier driver of this attempt.
    """

    def __init__(
        self,
        recipient: Recipient,
        attempt: int,
        warn: Callable[[str], None],
        earlier: CheckpointProgress | None = None,
    ) -> None:
        self._recipient = recipient
        self._attempt = attempt
        self._earlier = earlier
        self._warn = warn
        self._report = ProgressReport(attempt, time.monotonic, lambda: datetime.now(UTC))
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._is_away = False
        self._log_uri: str | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._report.take(event)
        if not isinstance(event, Advanced):  # comes each second, and is no change by itself
            self._changed.set()

    def name_log(self, uri: str | None) -> None:
        """Where the driver's log is, for the last report."""
        self._log_uri = uri

    def leave(self) -> None:
        """The last report of an attempt that was asked to stop: not worth waiting for."""
        self._stop()
        self.report()

    def fail(self, error: BaseException) -> None:
        """The last report of an attempt that has failed."""
        self._stop()
        progress = self._status()
        progress = progress.model_copy(update={"failure": failure_report(error, self._attempt)})
        self._recipient.report_progress(progress, is_last=True)

    def _run(self) -> None:
        began = time.monotonic()
        pause_s = 0.0
        while not self._ended.is_set():
            self._changed.wait(max(0.0, HEARTBEAT_S - pause_s))
            self._changed.clear()
            if self._ended.is_set():
                return
            pause_s = report_interval_s(time.monotonic() - began) if self.report() else 0.0
            self._ended.wait(pause_s)

    def report(self) -> bool:
        """Report how far the run is now; False where that cannot be said yet."""
        progress = self._status()
        if progress.ranges_total is None:
            return False  # it is still looking at what there is; the report of an earlier attempt says more
        try:
            self._recipient.report_progress(progress)
        except TokenizationError as error:
            if not self._is_away:
                self._warn(f"cannot report progress; the run continues: {error.message}")
            self._is_away = True
        else:
            self._is_away = False
        return True

    def _status(self) -> CheckpointProgress:
        with self._lock:
            return self._report.status().model_copy(update={"log_uri": self._log_uri})

    def _stop(self) -> None:
        self._ended.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def finish(self) -> CheckpointProgress:
        """Stop; what the whole run came to.

        A driver that finds the run complete has counted nothing. The counts that an earlier driver of the attempt has
        reported then stay: the API server refuses to take them away.
        """
        self._stop()
        progress, earlier = self._status(), self._earlier
        if progress.ranges_total is None and earlier is not None and earlier.attempt == self._attempt:
            progress = earlier.model_copy(update=progress.model_dump(exclude_none=True))
        return progress.model_copy(update={"percent": 100, "eta_seconds": 0, "stage": "Finish"})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._stop()


def failure_report(error: BaseException, attempt: int) -> FailureReport:
    """An error of this Pod as the operator reads it; what is none of ours is a bug."""
    now = time_text(datetime.now(UTC))
    pod = os.environ.get("HOSTNAME") or socket.gethostname()
    if isinstance(error, TokenizationError):
        return FailureReport(
            attempt=attempt,
            exit_code=error.exit_code,
            reason=error.reason,
            message=error.message[:4096],
            next_step=error.next_step[:4096] or None,
            pod=pod,
            time=now,
        )
    return FailureReport(
        attempt=attempt,
        exit_code=1,
        reason="Bug",
        message=redact(f"{type(error).__name__}: {error}")[:4096],
        pod=pod,
        time=now,
    )
