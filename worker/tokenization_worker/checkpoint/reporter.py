"""Tells a checkpoint how far its run is, beside the run: nothing waits for the API server.

At most one report per `report_interval_s`, and one per `HEARTBEAT_S` even if nothing happens, so that somebody can tell
a slow run from a dead one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from tokenization_worker.api.checkpoint import (
    MOST_REPORT_INTERVAL_S,
    CheckpointProgress,
    FailureReport,
    report_interval_s,
)
from tokenization_worker.api.types.times import time_text
from tokenization_worker.checkpoint.progress_report import ProgressReport
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Advanced, Event
from tokenization_worker.messages.redact import redact

HEARTBEAT_S = MOST_REPORT_INTERVAL_S


class Recipient(Protocol):
    def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
        """Raises `TokenizationError` where it cannot be told."""


class Reporter:
    """A watcher of events; leave it as a context manager. `warn` is told once when reports do not arrive."""

    def __init__(self, recipient: Recipient, attempt: int, warn: Callable[[str], None]) -> None:
        self._recipient = recipient
        self._attempt = attempt
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
        self.tell()

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
            pause_s = report_interval_s(time.monotonic() - began) if self.tell() else 0.0
            self._ended.wait(pause_s)

    def tell(self) -> bool:
        """Report how far the run is now; False where that cannot be said yet."""
        progress = self._status()
        if progress.ranges_total is None:
            return False  # it is still looking at what there is; the report of an earlier attempt says more
        try:
            self._recipient.report_progress(progress)
        except TokenizationError as error:
            if not self._is_away:
                self._warn(f"cannot report progress; the run goes on: {error.message}")
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
        """Stop; what the whole run came to."""
        self._stop()
        progress = self._status()
        return progress.model_copy(update={"percent": 100, "eta_seconds": 0, "stage": "Finish"})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._stop()


def failure_report(error: BaseException, attempt: int) -> FailureReport:
    """An error as the operator reads it; what is none of ours is a bug."""
    now = time_text(datetime.now(UTC))
    if isinstance(error, TokenizationError):
        return FailureReport(
            attempt=attempt,
            exit_code=error.exit_code,
            reason=error.reason,
            message=error.message[:4096],
            next_step=error.next_step[:4096] or None,
            time=now,
        )
    return FailureReport(
        attempt=attempt,
        exit_code=1,
        reason="Bug",
        message=redact(f"{type(error).__name__}: {error}")[:4096],
        time=now,
    )
