"""Runs of the pipeline of `level_tasks`: their output, the processes they lose, and when they stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.engine.level_tasks import (
    MOMENTS,
    Journal,
    Layout,
    LevelPipeline,
    closing_scratch,
    expected_shards,
    leftovers,
    shards_of,
)
from tokenization_worker.engine.dispatch import run_pipeline
from tokenization_worker.engine.executor import Executor
from tokenization_worker.events import Event, Warned

LAYOUT = Layout(segments=9, packs=6, sums=3, shards=8)


ITEMS = len(LAYOUT.needs())


ONE_OF_EACH = ("segment 1", "pack 2", "sum 0", "shard 3")
"""An item of each kind."""


def never() -> bool:
    return False


@dataclass
class Bed:
    """An output, and what its runs leave outside of it."""

    root: Path
    warnings: list[str] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.root / "out"

    @property
    def killed(self) -> int:
        """The processes that its runs have lost."""
        return sum("lost its worker and is retried" in words for words in self.warnings)

    def journal(
        self, *deaths: tuple[int, str], name: str = "journal", first_deaths: tuple[tuple[str, str], ...] = ()
    ) -> Journal:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        return Journal(str(folder), deaths, first_deaths)

    def run(
        self,
        start: Callable[[], Executor],
        seed: int = 0,
        *,
        journal: Journal | None = None,
        should_stop: Callable[[], bool] = never,
        on_event: Callable[[], None] = lambda: None,
        is_early: bool = False,
    ) -> None:
        """One start; raises `Stopped`."""

        def watch(event: Event) -> None:
            if isinstance(event, Warned):
                self.warnings.append(event.message)
            on_event()

        with closing_scratch(self.output):
            pipeline = LevelPipeline(LAYOUT, self.output, journal or self.journal(), seed, is_early=is_early)
            run_pipeline(pipeline, start, watch, should_stop)

    def require_complete(self) -> None:
        assert shards_of(self.output) == expected_shards(LAYOUT)
        assert leftovers(self.output) == []


def deaths_of(lots: random.Random, count: int) -> tuple[tuple[int, str], ...]:
    """One in every seven tasks: an item that loses three processes ends its run."""
    return tuple((7 * number + lots.randrange(7), lots.choice(MOMENTS)) for number in range(count))


def stops_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls))
    return lambda: next(left, None) is None
