"""What the events of a run add up to, as the checkpoint's status has it. Decides; does no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

from tokenization_worker.api.checkpoint import CheckpointProgress
from tokenization_worker.api.status import RangeRun
from tokenization_worker.api.types.times import time_text
from tokenization_worker.events import Advanced, Event, Progress, Resumed
from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.pipelines.tokenize.decoder_affinity import stretches

MOST_RUNS = 64
"""Runs of completed ranges in a status: it stays below 16 KiB at a million ranges."""

_RATE_WINDOW_S = 60.0
_BUILD_SHARE = 0.1
"""Of a run's time that goes into building shards, for the percentage."""


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
            case Advanced():  # what is under way makes the rates smooth; only what is done is counted
                self._sample(event)

    def _sample(self, event: Progress | Advanced) -> None:
        now = self._clock()
        done, tokens = event.bytes_done, event.tokens
        if isinstance(event, Progress) and self._samples:  # of what is under way it says nothing
            done, tokens = max(done, self._samples[-1][1]), max(tokens, self._samples[-1][2])
        self._samples.append((now, done, tokens))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()

    def status(self) -> CheckpointProgress:
        """How far the run is now."""
        last = self._last
        now = time_text(self._now())
        if last is None:
            return CheckpointProgress(attempt=self._attempt, last_checkpoint_time=now)
        done = stretches(sorted(self._done))
        read = last.bytes_done / last.bytes_total if last.bytes_total else 1.0
        built = last.shards_done / last.shards if last.shards else 0.0
        tokens_per_second, eta_seconds = self._rates(last)
        return CheckpointProgress(
            attempt=self._attempt,
            stage="Tokenize" if read < 1 else "Build" if built < 1 else "Finish",
            ranges_total=last.ranges,
            ranges_completed=last.ranges_done,
            completed_through=done[0][1] if done and not done[0][0] else 0,
            completed_ranges=[RangeRun(start=start, end=end) for start, end in done[:MOST_RUNS]],
            ranges_truncated=len(done) > MOST_RUNS,
            shards_built=last.shards_done,
            shards_total=last.shards,
            documents=last.documents,
            quarantined=last.quarantined,
            tokens=last.tokens,
            bytes_read=last.bytes_done,
            percent=int(99 * ((1 - _BUILD_SHARE) * read + _BUILD_SHARE * built)),
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
