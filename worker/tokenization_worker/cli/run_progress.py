"""Words the progress of a run: rates and the time left from its events, fitted into a line.

Decides; draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenization_worker.cli.numbers import clock_time, short_bytes, short_count
from tokenization_worker.cli.pace import Pace
from tokenization_worker.events import Advanced, Progress

GAP = 2


class Column(NamedTuple):
    """A part of a line. Where there is no room for all, those of the highest `rank` go first."""

    rank: int
    text: str


def fit(columns: Sequence[Column], width: int) -> str:
    """The columns in their order, `GAP` spaces between them, without those that `width` has no room for."""
    kept = list(columns)
    while kept and sum(len(column.text) for column in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(max(kept, key=lambda column: column.rank))
    return (" " * GAP).join(column.text for column in kept)


class RunProgress:
    """Takes the events of a run with the seconds since its command began."""

    def __init__(self) -> None:
        self.total = 0
        self.quarantined = 0
        self.shards_done = 0
        self.shards: int | None = None
        self.windows_done = 0
        self.windows: int | None = 0
        self.workers = 1
        self._stored, self._source, self._tokens = Pace(), Pace(), Pace()

    @property
    def bytes_done(self) -> int:
        return self._stored.done

    def take(self, event: Progress | Advanced, at_s: float) -> None:
        """Where a task has just ended, what others have done stays until the next `Advanced` says how much that is."""
        is_read = 0 < self.total <= self.bytes_done  # what comes now is no reading, and changes no rate
        self.total = event.bytes_total
        if isinstance(event, Advanced):
            self.workers = event.workers
        else:
            self.quarantined, self.shards_done, self.shards = event.quarantined, event.shards_done, event.shards
            self.windows_done, self.windows = event.windows_done, event.windows
        if is_read:
            return
        amounts = (event.bytes_done, event.source_bytes, event.tokens)
        for pace, amount in zip((self._stored, self._source, self._tokens), amounts, strict=True):
            least = 0 if isinstance(event, Advanced) else pace.done
            if not self.workers:  # the clock begins with the first worker
                pace.restart()
            pace.take(at_s, max(least, amount))

    def left_s(self) -> float | None:
        """Seconds until the last range is read; None where that cannot be said yet."""
        return self._stored.left_s(self.total)

    def columns(self, at_s: float) -> list[Column]:
        """` 68%  53.9M tokens  74M/s  312 MB/s  2 quarantined  1:12 left  2:30`."""
        share = self.bytes_done / self.total if self.total else 1.0
        if not self.workers:
            return [Column(0, f"{share:4.0%}"), Column(1, "waiting for workers"), Column(2, clock_time(at_s))]
        columns = [Column(0, f"{share:4.0%}"), Column(4, f"{short_count(self._tokens.done)} tokens")]
        if self._tokens.per_second():
            columns.append(Column(6, f"{short_count(self._tokens.per_second())}/s"))
            columns.append(Column(5, f"{short_bytes(self._source.per_second())}/s"))
        if self.quarantined:
            columns.append(Column(2, f"{self.quarantined:,} quarantined"))
        left = self.left_s()
        if left is not None:
            columns.append(Column(1, f"{clock_time(left)} left"))
        return [*columns, Column(3, clock_time(at_s))]

    def shards_text(self) -> str:
        """`3/12 shards`; `?` until the last file is read."""
        return f"{_part(self.shards_done, self.shards)} shards"

    @property
    def is_shuffled(self) -> bool:
        return self.windows != 0

    def windows_text(self) -> str:
        """`3/12 windows`, of a shuffle."""
        return f"{_part(self.windows_done, self.windows)} windows"


def _part(done: int, total: int | None) -> str:
    return f"{done:,}/{'?' if total is None else f'{total:,}'}"
